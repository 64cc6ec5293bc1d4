cmake_policy(VERSION 3.25)
# Run at every build (cmake -DSOURCE=... -DOUTPUT=... -P): writes the git revision as a C++ constant and
# touches the file only when it changed. 'unknown' outside a git checkout.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
# a copy inside another project's checkout is not that project's revision
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-toplevel
  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(REAL_PATH ${SOURCE} source)
if(failed OR NOT revision MATCHES "^[0-9a-f]+(-dirty)?$" OR NOT top STREQUAL source)
  set(revision unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define SAMARA_GIT_REVISION \"@revision@\"\n" @ONLY)
