// SPDX-License-Identifier: Apache-2.0 OR MIT
#include "core/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/sha256.h"
#include "core/suggestion.h"

namespace samara {
namespace {

// One row of every kind, bound to a struct as a component does it.
struct Settings {
  Settings() {
    table.Add("ga.population", &population, {.min = 2, .max = 1'000'000}, "members", "genomes");
    table.Add("ga.mutation", &mutation, {.min = 0}, "", "power of the noise");
    table.Add("ga.generations", &generations, {}, "", "budget", OnResume::kMayGrow);
    table.Add("run.quiet", &quiet, "no display", OnResume::kMayChange);
    table.Add("env.game", &game, {"frostbite", "gravitar", "venture"}, "which game");
    table.Add("run.note", &note, {}, "any text", OnResume::kMayChange);
    table.Add("run.stop_at", &stop_at, {.max = 1e6}, "", "score", OnResume::kMayChange);
  }
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  int64_t population = 1000, generations = 10;
  double mutation = 0.002;
  bool quiet = false;
  std::string game = "frostbite", note;
  std::optional<double> stop_at;
  ConfigTable table;
};

TEST(ConfigTest, RowsDescribeThemselves) {
  const Settings s;
  const std::pair<const char*, const char*> rows[] = {
      {"ga.population", "integer|2 to 1000000|members|1000|genomes"},
      {"ga.mutation", "number|at least 0||0.002|power of the noise"},
      {"ga.generations", "integer|||10|budget"},
      {"run.quiet", "boolean|||false|no display"},
      {"env.game", "one of frostbite|gravitar|venture|||\"frostbite\"|which game"},
      {"run.note", "text|||\"\"|any text"},
      {"run.stop_at", "number or none|at most 1000000||\"none\"|score"},
  };
  ASSERT_EQ(s.table.fields().size(), std::size(rows));
  for (const auto& [key, text] : rows) {
    const ConfigField* f = s.table.Find(key);
    ASSERT_NE(f, nullptr) << key;
    EXPECT_EQ(fmt::format("{}|{}|{}|{}|{}", f->type, f->range, f->unit, f->default_value, f->help),
              text);
  }
  EXPECT_EQ(s.table.Find("ga"), nullptr);
  EXPECT_EQ(s.table.Find("ga.population")->on_resume, OnResume::kMustMatch);
  EXPECT_EQ(s.table.Find("ga.generations")->on_resume, OnResume::kMayGrow);
  EXPECT_EQ(s.table.Find("run.quiet")->on_resume, OnResume::kMayChange);
}

// A run from before there was the key has the hash that it had.
TEST(ConfigTest, TheDefaultOfAnAddedKeyIsNoPartOfTheHash) {
  Settings before, after;
  int64_t stack = 0;
  after.table.Add("env.stack", &stack, {0, 64}, "", "", OnResume::kMustMatchAdded);
  EXPECT_EQ(after.table.Hash(), before.table.Hash());
  stack = 4;
  EXPECT_NE(after.table.Hash(), before.table.Hash());
}

// So has a run from before its default changed.
TEST(ConfigTest, AFormerDefaultKeepsTheHash) {
  const auto hash_of = [](int64_t value, int64_t preset) {
    int64_t population = value;
    ConfigTable table;
    table.Add("ga.population", &population, {}, "", "");
    if (value != 1000) table.AddFormerDefault("ga.population", "1000");
    population = preset;
    return table.Hash();
  };
  EXPECT_EQ(hash_of(500, 500), hash_of(1000, 1000));
  EXPECT_EQ(hash_of(500, 200), hash_of(1000, 200));
}

TEST(ConfigTest, TomlSetsWhatItNamesAndNothingElse) {
  Settings s;
  const Status status = s.table.ParseToml(
      "# a comment\r\n[ga]\npopulation = 1_500\nmutation = 5e-3\n[run]\nquiet = true\n"
      "note = 'a \"word\" \\ a path'\nstop_at = -3e2\n[env]\ngame = \"venture\"\n",
      "a.toml");
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(s.population, 1500);
  EXPECT_EQ(s.mutation, 0.005);
  EXPECT_TRUE(s.quiet);
  EXPECT_EQ(s.note, "a \"word\" \\ a path");
  EXPECT_EQ(s.game, "venture");
  EXPECT_EQ(s.generations, 10);
  EXPECT_EQ(s.stop_at, -300);
}

TEST(ConfigTest, AssignmentsAreReadAndShownCanonically) {
  const std::array<const char*, 3> cases[] = {
      {"ga.population", "2", "2"},
      {"ga.population", "1_000_000", "1000000"},
      {"ga.generations", "-9223372036854775808", "-9223372036854775808"},
      {"ga.mutation", "0", "0.0"},
      {"ga.mutation", "1e22", "1e+22"},
      {"ga.mutation", "0.1000000000000000055", "0.1"},
      {"run.quiet", "true", "true"},
      {"env.game", "gravitar", "\"gravitar\""},
      {"env.game", "\"venture\"", "\"venture\""},
      {"run.note", "", "\"\""},
      {"run.note", "a = b", "\"a = b\""},
      {"run.note", "a\"b", "\"a\\\"b\""},
      {"run.note", R"("a\"b\\c")", R"("a\"b\\c")"},
      {"run.stop_at", "-300", "-300.0"},
      {"run.stop_at", "\"47_5.5\"", "475.5"},  // as files had it
      {"run.stop_at", "none", "\"none\""},
  };
  for (const auto& [key, given, shown] : cases) {
    Settings s;
    const Status status = s.table.Override(std::string(key) + "=" + given);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(s.table.Find(key)->get(), shown) << given;
    // what get() shows is what set() accepts
    EXPECT_TRUE(s.table.Set(key, shown).ok());
    EXPECT_EQ(s.table.Find(key)->get(), shown) << given;
  }
}

TEST(ConfigTest, WrongAssignmentsAreNamedAndChangeNothing) {
  const std::pair<const char*, const char*> cases[] = {
      {"ga.population=1", "expected an integer 2 to 1000000"},
      {"ga.population=1000001", "expected an integer 2 to 1000000"},
      {"ga.population=", "expected an integer"},
      {"ga.population=_", "expected an integer"},
      {"ga.population=12x", "ga.population=12x"},
      {"ga.population=2.5", "expected an integer"},
      {"ga.generations=9223372036854775808", "expected an integer"},
      {"ga.mutation=-1e-9", "expected a number at least 0"},
      {"ga.mutation=1e999", "expected a number"},
      {"ga.mutation=nan", "expected a number"},
      {"ga.mutation=inf", "expected a number"},
      {"run.quiet=yes", "true or false"},
      {"env.game=Gravitas", "one of frostbite, gravitar, venture (nearest: gravitar)"},
      {"run.note=a\nb", "control characters"},
      {"run.stop_at=high", "run.stop_at=high: expected a number at most 1000000, or none"},
      {"run.stop_at=1e7", "expected a number at most 1000000, or none"},
      {"run.stop_at=nan", "or none"},
      {"run.stop_at=", "or none"},
      {"ga.popluation=5", "ga.popluation: unknown key; the nearest known one is ga.population"},
      {"population=5", "the nearest known one is ga.population"},
      {"ga.population", "expected table.key=value"},
      {"=5", "expected table.key=value"},
  };
  Settings s;
  const std::string before = s.table.ToToml();
  for (const auto& [assignment, message] : cases) {
    const Status status = s.table.Override(assignment);
    EXPECT_EQ(status.code(), Code::kConfig) << assignment;
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }
  EXPECT_EQ(s.table.ToToml(), before);
}

TEST(ConfigTest, WrongTomlIsNamed) {
  const std::pair<std::string, const char*> cases[] = {
      {"[ga]\npopulation = 5\npopulation = 6\n", "a.toml:3: "},
      {"[ga]\npopulation 5\n", "a.toml:2: "},
      {"[ga]\npopulation = \"unfinished", "a.toml:2: "},
      {"[run]\nquiet = truer\n", "a.toml:2: "},
      {"[run]\nquiet = falsely\n", "a.toml:2: "},
      {"[run]\nquiet = yes\n",
       "a.toml:2: quiet = yes: expected a number, true, false, or text in quotation marks"},
      {std::string("[ga]\npopulation = 5\0", 20), "a.toml:2: "},
      {"population = 5\n", "population: expected a table such as [run]"},
      {"[ga]\npopulation = [5]\n", "ga.population: expected one text, number or boolean"},
      {"[ga.deep]\npopulation = 5\n", "ga.deep: expected one text, number or boolean"},
      {"[ga]\npopulation = 1979-05-27\n", "ga.population: expected one text, number or boolean"},
      {"[ga]\npopulation = \"many\"\n", "a.toml: ga.population=\"many\": expected an integer"},
      {"[ga]\nmutation = nan\n", "expected a number"},
      {"[run]\nquiet = \"yes\"\n", "expected true or false"},
      {"[run]\nstop_at = false\n", "run.stop_at=false: expected a number at most 1000000, or none"},
      {"[run]\nnote = \"two\\nlines\"\n", "control characters"},
      {"[ga]\npopulatoin = 5\n",
       "a.toml: ga.populatoin: unknown key; the nearest known one is "
       "ga.population"},
      {std::string((1 << 20) + 1, '#'), "larger than 1 MiB"},
  };
  for (const auto& [text, message] : cases) {
    Settings s;
    const Status status = s.table.ParseToml(text, "a.toml");
    EXPECT_EQ(status.code(), Code::kConfig) << message;
    EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
  }
}

TEST(ConfigTest, RangesOfOneBoundAreSaidAndKept) {
  double below = 0, any = 0, share = 0.5;
  ConfigTable table;
  table.Add("a.below", &below, {.max = 5}, "", "");
  table.Add("a.any", &any, {}, "", "");
  table.Add("a.share", &share, {.min = 0, .max = 1}, "", "");
  EXPECT_EQ(table.Find("a.below")->range, "at most 5");
  EXPECT_EQ(table.Find("a.share")->range, "0 to 1");
  const std::pair<const char*, const char*> refused[] = {
      {"a.below=5.5", "a.below=5.5: expected a number at most 5"},
      {"a.share=1.5", "a.share=1.5: expected a number 0 to 1"},
      {"a.share=+-1", "a.share=+-1: expected a number 0 to 1"},
      {"a.share=5_", "a.share=5_: expected a number 0 to 1"},
      {"a.share=1e_5", "a.share=1e_5: expected a number 0 to 1"}};
  for (const auto& [assignment, message] : refused)
    EXPECT_EQ(table.Override(assignment).message(), message);
  for (const char* assignment : {"a.below=-7", "a.any=-0.0", "a.share=1"})
    EXPECT_TRUE(table.Override(assignment).ok()) << assignment;
  EXPECT_EQ(below, -7);
  EXPECT_FALSE(std::signbit(any));
}

TEST(ConfigTest, TextThatNoFileCouldHoldIsRefused) {
  Settings s;
  const std::pair<std::string, std::string> refused[] = {
      {"a\x7f", "run.note=(text): expected text without control characters"},
      {"\"a\\u007f\"", "run.note=(text): expected text without control characters"},
      {"\xff", "run.note=(text): expected text in UTF-8 without control characters"},
      {"\"a\"\nb = 2",
       "run.note=\"a\"\\x0ab = 2: expected a bare word, or text between two "
       "quotation marks as TOML has it"},
      {"\"\"\"a\nb\"\"\"",
       "run.note=\"\"\"a\\x0ab\"\"\": expected a bare word, or text between two "
       "quotation marks as TOML has it"}};
  for (const auto& [given, message] : refused) {
    const Status status = s.table.Set("run.note", given);
    EXPECT_EQ(status.code(), Code::kConfig);
    EXPECT_EQ(status.message(), message);
  }
  EXPECT_EQ(s.table.ParseToml("[run]\nnote = \"a\\u007f\"\n", "a.toml").message(),
            "a.toml: run.note=(text): expected text without control characters");
  EXPECT_EQ(s.note, "");
}

TEST(ConfigTest, OneTextIsReadWithoutATable) {
  const std::string toml = "[run]\nalgorithm = \"es\"\nseed = 3\n";
  EXPECT_EQ(TextIn(toml, "run.algorithm"), "es");
  for (const char* key : {"run.seed", "run.name", "es.sigma"}) EXPECT_EQ(TextIn(toml, key), "");
  EXPECT_EQ(TextIn("[run\n", "run.algorithm"), "");
}

// One value, given in a file and by an override.
TEST(ConfigTest, ANumberIsTheSameInAFileAndInAnOverride) {
  const std::pair<const char*, int64_t> integers[] = {{"5", 5},
                                                      {"+5", 5},
                                                      {"1_000", 1000},
                                                      {"-0", 0},
                                                      {"1e3", 1000},
                                                      {"1.5E+3", 1500},
                                                      {"2_4e6", 24'000'000},
                                                      {"9007199254740993e0", (1LL << 53) + 1},
                                                      {"10.50e1", 105},
                                                      {"1200e-2", 12},
                                                      {"9007199254740993", (1LL << 53) + 1}};
  for (const auto& [text, value] : integers) {
    Settings file, line;
    EXPECT_TRUE(file.table.ParseToml(fmt::format("[ga]\ngenerations = {}", text), "a").ok())
        << text;
    EXPECT_TRUE(line.table.Override(fmt::format("ga.generations={}", text)).ok()) << text;
    EXPECT_EQ(file.generations, value) << text;
    EXPECT_EQ(line.generations, value) << text;
  }
  const std::pair<const char*, const char*> refused[] = {
      {"ga.generations", "-0.0"},
      {"ga.generations", "5.0"},
      {"ga.generations", "1.5e0"},
      {"ga.generations", "1e-3"},
      {"ga.generations", "1e19"},
      {"ga.generations", "1e999"},
      {"ga.generations", "1e"},
      {"ga.generations", ".5e1"},
      {"ga.generations", "5.e0"},
      {"ga.generations", "1.0000000000000000001e3"},
      {"ga.generations", "e3"},
      {"ga.generations", "1.5e-2147483648"},
      {"ga.generations", "1e+"},
      {"ga.generations", "-e3"},
      {"ga.generations", "-.5e1"},
      {"ga.generations", "1e20"},
      {"ga.generations", "1e99999999999"},
      {"ga.generations", "1e-400"},
      {"ga.population", "-0.0"},
      {"ga.mutation", "-0.0"},
      {"ga.mutation", "1e-400"},
      {"ga.mutation", "1e400"},
      {"ga.mutation", "inf"},
      {"ga.generations", "1__0"},
      {"ga.generations", "_1"},
      {"ga.mutation", "1_.5"}};
  for (const auto& [key, text] : refused) {
    Settings file, line;
    const std::string name = std::string(key).substr(3);
    // behind a character of two bytes, since the number is taken from the text
    const std::string toml = fmt::format("ga = {{ {} = {} }} # ä", name, text);
    EXPECT_EQ(file.table.ParseToml(toml, "a").code(), Code::kConfig) << key << "=" << text;
    EXPECT_EQ(line.table.Override(fmt::format("{}={}", key, text)).code(), Code::kConfig) << text;
    EXPECT_EQ(file.table.Hash(), Settings().table.Hash()) << key << "=" << text;
    EXPECT_EQ(line.table.Hash(), Settings().table.Hash()) << key << "=" << text;
  }
}

TEST(ConfigTest, TextIsQuotedInAFileAndMayBeBareInAnOverride) {
  const std::pair<const char*, const char*> read[] = {{"bare", "bare"},
                                                      {"two words", "two words"},
                                                      {"5", "5"},
                                                      {"true", "true"},
                                                      {"a\"b", "a\"b"},
                                                      {"\"quoted\"", "quoted"},
                                                      {"'quoted'", "quoted"},
                                                      {"\"a \\\"b\\\"\"", "a \"b\""},
                                                      {"", ""}};
  for (const auto& [given, text] : read) {
    Settings s;
    const Status status = s.table.Set("run.note", given);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(s.note, text);
  }
  for (const char* given : {"\"half", "half\"", "'half", "\"a\" \"b\"", "\"a'", "\"", "\"a\"#\""}) {
    Settings s;
    const Status status = s.table.Set("run.note", given);
    EXPECT_EQ(status.code(), Code::kConfig) << given;
    EXPECT_NE(status.message().find("quotation marks"), std::string::npos) << status.message();
  }
  for (const char* toml : {"note = word", "note = 5", "note = true", "note = 1e3", "note = fo"}) {
    Settings s;
    const Status status = s.table.ParseToml(fmt::format("[run]\n{}\n", toml), "a.toml");
    EXPECT_EQ(status.code(), Code::kConfig) << toml;
    EXPECT_NE(status.message().find("in quotation marks"), std::string::npos) << status.message();
  }
}

TEST(ConfigTest, AnEmptyFileIsNoConfiguration) {
  for (const char* text : {"", "\n", "# only a comment\n", "[ga]\n", "[unknown]\n"}) {
    Settings s;
    const Status status = s.table.ParseToml(text, "a.toml");
    EXPECT_EQ(status.code(), Code::kConfig);
    EXPECT_NE(status.message().find("a.toml: empty"), std::string::npos) << status.message();
  }
}

TEST(ConfigTest, MessagesQuoteNoMoreThanAHundredBytes) {
  const std::string big(100'000, 'x');
  Settings s;
  const Status refused[] = {s.table.Override("ga.population=" + big),
                            s.table.Override("env.game=" + big),
                            s.table.Override("ga." + big + "=1"),
                            s.table.Override(big),
                            s.table.Override("run.note=\"" + big),
                            s.table.ParseToml("[ga]\npopulation = " + big, "a"),
                            s.table.ParseToml("[ga]\n" + big + " = 1", "a"),
                            s.table.ParseToml(big + " = 1", "a"),
                            s.table.ParseToml("[ga]\npopulation = \"" + big + "\"", "a"),
                            s.table.ParseToml("[" + big + "]\npopulation = [1]", "a")};
  for (const Status& status : refused) {
    EXPECT_EQ(status.code(), Code::kConfig);
    EXPECT_LT(status.message().size(), 500u) << status.message().substr(0, 500);
  }
}

TEST(ConfigTest, TomlOfTheTableReadsBackTheSame) {
  Settings s;
  s.population = 77;
  s.mutation = std::numeric_limits<double>::denorm_min();
  s.note = R"(a "quoted" \path\, ä)";
  Settings copy;
  const Status status = copy.table.ParseToml(s.table.ToToml(), "config.toml");
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(copy.population, 77);
  EXPECT_EQ(copy.mutation, s.mutation);
  EXPECT_EQ(copy.note, s.note);
  EXPECT_EQ(copy.table.ToToml(), s.table.ToToml());
  EXPECT_EQ(
      Settings().table.ToToml(),
      "[ga]\npopulation = 1000\nmutation = 0.002\ngenerations = 10\n\n"
      "[run]\nquiet = false\nnote = \"\"\nstop_at = \"none\"\n\n[env]\ngame = \"frostbite\"\n\n");
}

TEST(ConfigTest, TheHashCoversWhatMustMatchOnResume) {
  EXPECT_EQ(Settings().table.Hash(),
            Sha256Hex("ga.population=1000\nga.mutation=0.002\nenv.game=\"frostbite\"\n"));
  for (const char* same :
       {"ga.generations=20", "run.quiet=true", "run.note=a", "ga.mutation=2e-3"}) {
    Settings s;
    ASSERT_TRUE(s.table.Override(same).ok());
    EXPECT_EQ(s.table.Hash(), Settings().table.Hash()) << same;
  }
  for (const char* other :
       {"ga.population=1001", "ga.mutation=0.0020000000000000005", "env.game=venture"}) {
    Settings s;
    ASSERT_TRUE(s.table.Override(other).ok());
    EXPECT_NE(s.table.Hash(), Settings().table.Hash()) << other;
  }
}

// Texts that toml++ up to 3.4 asserts on or calls unreachable; found by the fuzz targets.
TEST(ConfigTest, TextThatTheParserDidNotExpectIsAnError) {
  const char* const texts[] = {"[[[1]]]",
                               "[[=",
                               "[=",
                               "[\n",
                               "[a]\nb={c=[},2]}",
                               "[a]\nb=\u00e9",
                               "[a]\nb=1='\u0430",
                               "[a]\nb=-\\\"\u0430\"",
                               "\u00e9=1"};
  for (const char* text : texts) {
    Settings s;
    EXPECT_EQ(s.table.ParseToml(text, "a.toml").code(), Code::kConfig) << text;
  }
  Settings s;
  ASSERT_TRUE(s.table.ParseToml("[run]\nnote = \"\"\"\\\n  \u00a7\"\"\"\n", "a.toml").ok());
  EXPECT_EQ(s.note, "\u00a7");
}

TEST(ConfigTest, TheOrderOfAssignmentsDoesNotMatter) {
  Settings a, b;
  ASSERT_TRUE(
      a.table.ParseToml("[ga]\npopulation=5\nmutation=0.5\n[env]\ngame='venture'", "a").ok());
  for (const char* assignment : {"env.game=venture", "ga.mutation=.5", "ga.population=5"})
    ASSERT_TRUE(b.table.Override(assignment).ok());
  EXPECT_EQ(a.table.Hash(), b.table.Hash());
  EXPECT_EQ(a.table.ToToml(), b.table.ToToml());
}

TEST(NearestTest, CompletesBeforeItCorrects) {
  const std::vector<std::string> names = {"train", "trial", "eval", "play", "report", "rep"};
  const std::pair<const char*, const char*> cases[] = {
      {"train", "train"},  {"tarin", "train"},   {"evla", "eval"}, {"pay", "play"},
      {"repor", "report"}, {"tria", "trial"},    {"re", "rep"},    {"EVAL", "eval"},
      {"plays", "play"},   {"evaluate", "eval"},
  };
  for (const auto& [word, name] : cases) EXPECT_EQ(Nearest(word, names), name) << word;
  EXPECT_EQ(Nearest("word", {}), "");
}

// what a person types is most often the end of a name that has several parts
TEST(NearestTest, KnowsANameByItsLastPart) {
  const std::vector<std::string> presets = {"atari/deep-ga", "atari/vtrace", "classic/cartpole-ga",
                                            "classic/cartpole-vtrace", "mujoco/humanoid-ga"};
  const std::vector<std::string> keys = {
      "env.id",           "run.seed", "ga.population", "ga.frames", "optimizer.learning_rate",
      "vtrace.truncation"};
  const std::tuple<const char*, const char*, const std::vector<std::string>&> cases[] = {
      {"cartpole-ga", "classic/cartpole-ga", presets},
      {"CartPole-v1", "classic/cartpole-ga", presets},
      {"cartpole-vtr", "classic/cartpole-vtrace", presets},
      {"classic/cartpole-gaa", "classic/cartpole-ga", presets},
      {"atari/cartpole-ga", "classic/cartpole-ga", presets},
      {"humanoid", "mujoco/humanoid-ga", presets},
      {"population", "ga.population", keys},
      {"poplation", "ga.population", keys},
      {"gaa.population", "ga.population", keys},
      {"learn.learning_rate", "optimizer.learning_rate", keys},
      {"ga.frame", "ga.frames", keys},
  };
  for (const auto& [word, name, names] : cases) EXPECT_EQ(Nearest(word, names), name) << word;
}

TEST(ConfigTest, SaysWhoseAKeyIs) {
  int64_t frames = 0;
  ConfigTable table;
  table.Add("ga.frames", &frames, {0, 10}, "", "budget");
  table.AddElsewhere("learn.frames", "run.algorithm=vtrace; this run is deep-ga");
  const Status refused = table.Override("learn.frames=5");
  EXPECT_EQ(refused.code(), Code::kConfig);
  EXPECT_EQ(refused.message(), "learn.frames belongs to run.algorithm=vtrace; this run is deep-ga");
  EXPECT_EQ(table.Find("learn.frames"), nullptr);
  EXPECT_NE(table.Override("learn.frame=5").message().find("unknown key"), std::string::npos);
}

enum class Colour { kRed, kBlue };
constexpr EnumName<Colour> kColours[] = {{Colour::kRed, "red"}, {Colour::kBlue, "blue"}};

TEST(ConfigTest, AnEnumerationIsBoundByTheNamesOfItsValues) {
  Colour colour = Colour::kBlue;
  std::string text = "blue";
  ConfigTable by_value, by_text;
  by_value.Add("ga.colour", &colour, kColours, "of the members");
  by_text.Add("ga.colour", &text, {"red", "blue"}, "of the members");
  EXPECT_EQ(by_value.ToToml(), by_text.ToToml());
  EXPECT_EQ(by_value.Hash(), by_text.Hash());
  EXPECT_EQ(by_value.fields()[0].type, by_text.fields()[0].type);
  EXPECT_TRUE(by_value.Override("ga.colour=red").ok());
  EXPECT_EQ(colour, Colour::kRed);
  EXPECT_EQ(by_value.Override("ga.colour=rod").message(),
            by_text.Override("ga.colour=rod").message());
  EXPECT_EQ(colour, Colour::kRed);
}

struct Options {
  Options() {
    table.AddTable("env.kwargs", &kwargs, "");
    table.AddList("env.wrappers", &wrappers, "");
  }
  std::string kwargs = "{}", wrappers = "[]";
  ConfigTable table;
};

TEST(ConfigTest, ATableTakesValuesByName) {
  Options o;
  ASSERT_TRUE(o.table.Override(R"(env.kwargs={size = 4, start = [1, 2.5]})").ok());
  EXPECT_EQ(o.kwargs, R"({"size" = 4, "start" = [1, 2.5]})");
  for (const char* word : {"env.kwargs.mode=hard", "env.kwargs.size=1e3", "env.kwargs.on=true",
                           R"(env.kwargs.text="a \"b\"")", "env.kwargs.in={a = 1}"})
    ASSERT_TRUE(o.table.Override(word).ok()) << word;
  EXPECT_EQ(JsonOf(o.kwargs),
            R"({"in": {"a": 1}, "mode": "hard", "on": true, "size": 1000.0, "start": [1, 2.5], )"
            R"("text": "a \"b\""})");
  Options again;
  ASSERT_TRUE(again.table.ParseToml(o.table.ToToml(), "a.toml").ok());
  EXPECT_EQ(again.kwargs, o.kwargs);
  EXPECT_EQ(again.table.Hash(), o.table.Hash());
  // Python's words are no texts, which would be true
  Options python;
  ASSERT_TRUE(python.table.Override("env.kwargs.a=False").ok());
  ASSERT_TRUE(python.table.Override("env.kwargs.b=True").ok());
  ASSERT_TRUE(python.table.Override("env.kwargs.c=\"False\"").ok());
  EXPECT_EQ(JsonOf(python.kwargs), R"({"a": false, "b": true, "c": "False"})");
  // lines are a text, not a second key
  Options lines;
  ASSERT_TRUE(lines.table.Override("env.kwargs.a=1\nb = 2").ok());
  EXPECT_EQ(lines.kwargs, R"({"a" = "1\u000ab = 2"})");
  Options file;
  ASSERT_TRUE(file.table.ParseToml("[env.kwargs]\nb = 1\na = 'x'\n", "a.toml").ok());
  EXPECT_EQ(file.kwargs, R"({"a" = "x", "b" = 1})");
}

TEST(ConfigTest, AListIsOfTextsAndMayStandBetweenCommas) {
  Options o;
  ASSERT_TRUE(o.table.Override("env.wrappers=a:B,c.d:E?n=3").ok());
  EXPECT_EQ(o.wrappers, R"(["a:B", "c.d:E?n=3"])");
  EXPECT_EQ(JsonOf(o.wrappers), o.wrappers);
  ASSERT_TRUE(o.table.ParseToml("[env]\nwrappers = ['x:Y']\n", "a.toml").ok());
  EXPECT_EQ(o.wrappers, R"(["x:Y"])");
  ASSERT_TRUE(o.table.Override("env.wrappers=a:B?x=[1,2],c:D").ok());
  EXPECT_EQ(o.wrappers, R"(["a:B?x=[1,2]", "c:D"])");
  ASSERT_TRUE(o.table.Override("env.wrappers=a:B?x={k = 1, l = 2},c:D?y=(1,2)").ok());
  EXPECT_EQ(o.wrappers, R"x(["a:B?x={k = 1, l = 2}", "c:D?y=(1,2)"])x");
  ASSERT_TRUE(o.table.Override("env.wrappers=").ok());
  EXPECT_EQ(o.wrappers, "[]");
}

TEST(ConfigTest, WrongTablesAndListsAreNamedAndChangeNothing) {
  Options o;
  for (const char* word :
       {"env.kwargs=4", "env.kwargs={a = }", "env.kwargs={a = nan}", "env.kwargs.a=1979-05-27",
        "env.kwargs={a = 1}, b", "env.kwargs.a=\"b", "env.kwargs={a = 1}\nb = 2",
        "env.kwargs.a=\xff", "env.kwargs.a=None", "env.kwargs={a = [nan]}", "env.kwargs.=1",
        "env.wrappers=[1]", "env.wrappers=[\"a\"", "env.wrappers=\xff"}) {
    const Status status = o.table.Override(word);
    EXPECT_EQ(status.code(), Code::kConfig) << word;
    EXPECT_TRUE(status.message().starts_with("env.")) << status.message();
  }
  EXPECT_EQ(o.table.Override("env.kwargz.a=1").code(), Code::kConfig);
  EXPECT_EQ(o.table.Override("env.wrappers.a=1").code(), Code::kConfig);
  EXPECT_FALSE(o.table.ParseToml("[env]\nkwargs = 'a'\n", "a.toml").ok());
  EXPECT_FALSE(o.table.ParseToml("[env]\nkwargs = {a = inf}\n", "a.toml").ok());
  EXPECT_FALSE(o.table.ParseToml("[env]\nwrappers = [1]\n", "a.toml").ok());
  EXPECT_EQ(o.kwargs, "{}");
  EXPECT_EQ(o.wrappers, "[]");
}

TEST(ConfigTest, AFormerKeyIsReadFromARunAndOtherwiseNamesTheNewOne) {
  Settings s;
  s.table.AddFormer("ga.pairs", "ga.population", "twice the number of pairs",
                    [](std::string_view) { return std::string("64"); });
  s.table.AddFormerValue("env.game", "ice", "frostbite");
  constexpr char kOld[] = "[ga]\npairs = 32\n[env]\ngame = \"ice\"\n";
  EXPECT_EQ(s.table.ParseToml(kOld, "config.toml").message(),
            "config.toml: ga.pairs was renamed: set ga.population, twice the number of pairs");
  EXPECT_EQ(s.table.Override("ga.pairs=32").code(), Code::kConfig);
  EXPECT_TRUE(s.table.ParseToml(kOld, "config.toml", ConfigTable::Origin::kRecorded).ok());
  EXPECT_EQ(s.population, 64);
  EXPECT_EQ(s.game, "frostbite");
  s.game = "venture";
  EXPECT_TRUE(s.table.Override("env.game=ice").ok());
  EXPECT_EQ(s.game, "frostbite");
  EXPECT_EQ(s.table.Override("env.game=snow").code(), Code::kConfig);
}

}  // namespace
}  // namespace samara
