# Two commands do everything on a fresh machine: `make train` and `make test`.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# of `scripts/setup --no-root`: every shell of these commands reads it
ifneq ($(wildcard .deps/environment),)
export BASH_ENV := $(CURDIR)/.deps/environment
endif
PRESET ?= atari/deep-ga-quick

.PHONY: help setup envpool rivals build train test test-quick test-long format lint fuzz coverage dist wheel clean
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make train       set up, build, and evolve players of a real Atari game (six to twelve minutes on two cores, by CPU)
train: setup
	scripts/train $(PRESET) $(ARGS)

## make test        set up, build, and run every test but the slowest
test: build
	scripts/test

## make test-quick  the tests without sanitizers (ten to twenty minutes)
test-quick: build
	scripts/test --quick

## make test-long   every test, the slow ones too: every ROM, many kills (an hour and a half more; PART=2/4: the second of four parts)
test-long: build
	scripts/test --long $(PART)

## make build       set up and build; leaves build/samara
build: setup
	scripts/build

## make setup       system packages, .venv and pinned Python packages; quick the second time
setup:
	scripts/setup

## make envpool     add EnvPool to .venv (0.9 GB): Football, Procgen, dm_control, ViZDoom and more as env.id=envpool:NAME
envpool:
	scripts/setup --envpool

## make rivals      other systems that `samara bench` compares with, in .venv-rivals and .venv-rivals-2023 (5 GB)
rivals:
	scripts/rivals

## make format      clang-format over the tree
format: setup
	git ls-files '*.cc' '*.h' | xargs .venv/bin/clang-format -i

## make lint        Clang's thread-safety analysis and clang-tidy (torch code: the analysis alone)
lint:
	scripts/setup --lint
	scripts/lint

## make fuzz        what strangers' bytes reach, a minute each under clang's libFuzzer
fuzz: setup
	scripts/setup --fuzz
	scripts/fuzz

## make coverage    lines and branches that the tests run, by folder (builds all of it once more)
coverage: setup
	scripts/coverage

## make dist        an archive that runs elsewhere, build/samara-*.tar.gz (ARGS=--with-torch: with the learners, and libtorch)
dist: setup
	scripts/dist $(ARGS)

## make wheel       the Python package, build/samara-*.whl, for pip on other machines
wheel: setup
	scripts/wheel

clean:
	rm -rf build build-*
