#include "chat/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"

// What is expected here was computed with Python's Jinja 3.1 as transformers sets it up.

namespace redlite::chat::jinja {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Text render_text(const std::string& source, const std::string& variables = "{}", uint64_t steps = 1'000'000) {
  ::setenv("TZ", "UTC", 1);
  Variables given;
  given.content = nlohmann::ordered_json::parse(variables);
  given.trusted = {{"eos_token", "<|im_end|>"}};
  given.now = 1'796'000'000;
  given.steps = steps;
  return Template("t.jinja", source).render(given);
}

std::string render(const std::string& source, const std::string& variables = "{}") {
  return render_text(source, variables).bytes();
}

std::string error_of(const std::string& source, const std::string& variables = "{}",
                     uint64_t steps = 1'000'000) {
  try {
    return "no error: " + render_text(source, variables, steps).bytes();
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(Jinja, LoopsAndScopes) {
  EXPECT_EQ(render("{% for i in range(3) recursive %}{{ loop.depth }}{{ i }}{% endfor %}"), "101112");
  EXPECT_EQ(render("{% for t in d recursive %}{{ t.n }}{% if t.c %}({{ loop(t.c) }}){% endif %}{{ "
                   "loop.depth0 }}{% endfor %}",
                   "{\"d\": [{\"n\": \"a\", \"c\": [{\"n\": \"b\"}, {\"n\": \"c\", \"c\": [{\"n\": "
                   "\"d\"}]}]}, {\"n\": \"e\"}]}"),
            "a(b1c(d2)1)0e0");
  EXPECT_EQ(render("{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}"), "123");
  EXPECT_EQ(render("{% set ns = namespace(seen=false) %}{% for x in [1, 2, 3] if not ns.seen %}{{ x }}{% set "
                   "ns.seen = true %}{% endfor %}"),
            "1");
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for x in [1, 2, 3, 4] if x > ns.n %}{{ x }}{{ loop.last "
                   "}}{% set ns.n = x + 1 %}{% endfor %}"),
            "1False2False3False4True");
  EXPECT_EQ(render("{% for x in [1, 2] %}{{ loop.cycle('a', 'b', 'c') }}{% endfor %}{{ loop }}"), "ab");
  EXPECT_EQ(render("{% for x in 'a\303\261b' %}{{ x }}.{% endfor %}{% for k in {'a': 1, 'b': 2} %}{{ k }}{% "
                   "endfor %}"),
            "a.\303\261.b.ab");
  EXPECT_EQ(render("{% for x in [1, 2] %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ "
                   "y }}{% endfor %}{% endfor %}"),
            "1121");
  EXPECT_EQ(render("{% with a = 1, b = 2 %}{{ a + b }}{% set c = 3 %}{% endwith %}[{{ a }}{{ c }}]"), "3[]");
  EXPECT_EQ(render("{% set a, b = 1, [2] %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}"), "1[2](1,)");
  EXPECT_EQ(render("{% macro m(a, b=a * 2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) "
                   "}}{{ m(1, 2, 3, k=4) }}"),
            "12(){}12(3,){'k': 4}");
  EXPECT_EQ(render("{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 2 "
                   "%}{{ m() }}{{ x }}"),
            "252");
  EXPECT_EQ(render("{% macro m() %}{{ caller is defined }}{{ caller('x') if caller }}{% endmacro %}{{ m() "
                   "}}{% call(v) m() %}<{{ v }}>{% endcall %}"),
            "FalseTrue<x>");
  EXPECT_EQ(render("{% set x | upper | replace('A', 'o') %}a{{ 1 }}b{% endset %}{{ x }}"), "o1B");
  EXPECT_EQ(render("{% filter trim | indent(2, first=true) %} a\nb {% endfilter %}"), "  a\n  b");
  EXPECT_EQ(render("{{ 'a' if false }}|{{ none }}|{{ [none, true, 'x', 1.0, {'k': (1,)}] }}"),
            "|None|[None, True, 'x', 1.0, {'k': (1,)}]");
}

TEST(Jinja, NumbersAndComparisons) {
  EXPECT_EQ(render("{{ 7 // -2 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ "
                   "10 / 4 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}"),
            "-4 2 3.0 0.5 1024 0.5 2.5 4 64");
  EXPECT_EQ(render("{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.0 }} {{ -0.0 }} {{ 1e300 * 1e10 }} "
                   "{{ 0.1 + 0.2 }} {{ 3.14e-7 }}"),
            "1e+16 1000000000000000.0 0.0001 1e-05 1.0 -0.0 inf 0.30000000000000004 3.14e-07");
  EXPECT_EQ(render("{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5_0 }}"), "31 5 15 1000 10.5");
  EXPECT_EQ(
      render("{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ true == 1 }} {{ true "
             "+ 1 }} {{ 1 == '1' }} {{ none == false }} {{ [1] == (1,) }} {{ {'a': 1.0} == {'a': 1} }}"),
      "True False True True True 2 False False False True");
  EXPECT_EQ(render("{{ '5' | int + 1 }} {{ ' 7 ' | int }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ '1.9' | int "
                   "}} {{ 'ff' | int(base=16) }} {{ 3.9 | int }} {{ '2.5' | float }} {{ 'x' | float }} {{ "
                   "2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ "
                   "2.19 | round(1, 'floor') }} {{ 5 | round }}"),
            "6 7 0 9 1 255 3 2.5 0.0 2.57 2.0 4.0 3.0 2.1 5");
  EXPECT_EQ(render("{{ (1, 2) + (3,) }} {{ [1] * 3 }} {{ 'ab' * 2 }} {{ 2 * 'x' }} {{ 'a' * -1 }}|"),
            "(1, 2, 3) [1, 1, 1] abab xx |");
  EXPECT_EQ(render("{{ not 1 == 2 }} {{ 1 is odd and 2 is even }} {{ 6 is divisibleby 3 }} {{ 6 is "
                   "divisibleby(4) }} {{ 1 is sameas true }} {{ 'a' is in ['a'] }} {{ 3 is gt 2 }} {{ 'AB' "
                   "is upper }} {{ 'ab1' is lower }} {{ '1' is lower }}"),
            "True True True False False True True True True False");
}

TEST(Jinja, Strings) {
  EXPECT_EQ(
      render("{{ 'a\303\261\345\244\251\360\237\221\251'[1] }}{{ 'a\303\261\345\244\251\360\237\221\251'[-1] "
             "}}{{ 'a\303\261\345\244\251\360\237\221\251'[1:3] }}{{ "
             "'a\303\261\345\244\251\360\237\221\251'[::-1] }}{{ 'a\303\261\345\244\251\360\237\221\251' | "
             "length }}{{ 'abc'[5] is defined }}[{{ 'abc'[5:] }}]{{ 'abcdef'[4:1:-2] }}"),
      "\303\261\360\237\221\251\303\261\345\244\251\360\237\221\251\345\244\251\303\261a4False[]ec");
  EXPECT_EQ(
      render("{{ 'stra\303\237e'.upper() }} {{ '\303\200\303\211\303\216'.lower() }} {{ '\307\206'.title() "
             "}} {{ '\303\237'.capitalize() }} {{ '\316\221\316\243 \316\221\316\243\316\222'.lower() }} {{ "
             "'\304\260'.lower() | length }} {{ '\320\277\321\200\320\270\320\262\320\265\321\202 "
             "\320\234\320\230\320\240' | capitalize }} {{ \"they're bill's\" | title }} {{ "
             "\"they're\".title() }} {{ 'aB'.swapcase() }} {{ '\357\254\201'.upper() }}"),
      "STRASSE \303\240\303\251\303\256 \307\205 Ss \316\261\317\202 \316\261\317\203\316\262 2 "
      "\320\237\321\200\320\270\320\262\320\265\321\202 \320\274\320\270\321\200 They're Bill's They'Re Ab "
      "FI");
  EXPECT_EQ(render("{{ ' \302\240\343\200\200x\342\200\250 '.strip() }}|{{ 'xyaxy'.strip('yx') }}|{{ "
                   "'\303\251a\303\251'.strip('\303\251') }}|{{ '\\n\\nx\\n'.lstrip('\\n') }}|"),
            "x|a|a|x\n|");
  EXPECT_EQ(render("{{ ' a  b '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,,c'.split(',') }} {{ "
                   "'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ "
                   "'aaa'.split('aa') }} {{ 'aaa'.rsplit('aa') }} {{ ''.split() }} {{ ''.split(',') }} {{ "
                   "'a\\nb\\r\\nc\\n'.splitlines() }} {{ 'a\\nb'.splitlines(true) }}"),
            "['a', 'b'] ['a', 'b c '] ['a', 'b', '', 'c'] ['a', 'b,c'] ['a,b', 'c'] [' a b', 'c'] ['', 'a'] "
            "['a', ''] [] [''] ['a', 'b', 'c'] ['a\\n', 'b']");
  EXPECT_EQ(render("{{ 'aXbX'.replace('X', '--', 1) }} {{ 'ab'.replace('', '.') }} {{ 'abc' | replace('b', "
                   "'') }} {{ 'a.b'.partition('.') }} {{ 'a.b.c'.rpartition('.') }} {{ 'ab'.partition('.') "
                   "}} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }}"),
            "a--bX .a.b. ac ('a', '.', 'b') ('a.b', '.', 'c') ('ab', '', '') x x");
  EXPECT_EQ(render("{{ '\303\251a\303\251'.find('a') }} {{ 'abab'.rfind('ab') }} {{ 'abc'.find('x') }} {{ "
                   "'abab'.count('ab') }} {{ 'abc'.index('c') }} {{ 'a1'.isalnum() }} {{ '12'.isdigit() }} "
                   "{{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ ''.isdigit() }} {{ 'abc'.endswith(('x', "
                   "'c')) }} {{ ', '.join(['a', 'b']) }}"),
            "1 2 -1 2 2 True True True True False True a, b");
  EXPECT_EQ(render("{{ '%s is %d and %.2f %5s|%-5s|%05d %x %r %%' % ('a', 3, 2.5, 'b', 'c', -42, 255, 'q') "
                   "}} {{ '%s' % 1 }} {{ '%(a)s' % {'a': 1} }} {{ '%s-%s' | format(1, 'x') }}"),
            "a is 3 and 2.50     b|c    |-0042 ff 'q' % 1 1 1-x");
  EXPECT_EQ(render("{{ '{} {}'.format('a', 1) }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x='y') }} "
                   "{{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }} {{ '{:05d} {:.2f} {:,} {:x} "
                   "{:+d} {:%}'.format(42, 3.14159, 1234567, 255, 3, 0.25) }} {{ '{{}}'.format() }} {{ "
                   "'{0.a} {0[b]} {1[0]}'.format({'b': 2, 'a': 1}, [5]) if false else '' }} {{ "
                   "'{!r}'.format('a') }} {{ '{:.2}'.format('abc') }}"),
            "a 1 ba y     a|b    |  c  |***d*** 00042 3.14 1,234,567 ff +3 25.000000% {}  'a' ab");
  EXPECT_EQ(
      render("{{ ['a\\'b', 'a\"b', 'a\\'\"b', '\\n\\t\\\\', '\\x00\\x7f\\xa0', '\303\251\345\244\251', "
             "'\\u200b'] }}"),
      "[\"a'b\", 'a\"b', 'a\\'\"b', '\\n\\t\\\\', '\\x00\\x7f\\xa0', '\303\251\345\244\251', '\\u200b']");
  EXPECT_EQ(render("{{ \"\\x41\\u00e9\\U0001F600\\101\\q\" 'joined' }}"),
            "A\303\251\360\237\230\200A\\qjoined");
  EXPECT_EQ(render("{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\n\\nb' | indent(2, true, true) }}|{{ 'a\\nb' | "
                   "indent('> ') }}|{{ '<a href=\"x\">&\\'' | escape }}|{{ 'one two,three' | wordcount }}|{{ "
                   "'x' ~ 1 ~ none ~ 1.5 ~ [1] }}"),
            "a\n    b\n\n    c|  a\n  \n  b|a\n> b|&lt;a href=&#34;x&#34;&gt;&amp;&#39;|3|x1None1.5[1]");
}

TEST(Jinja, Collections) {
  EXPECT_EQ(render("{{ d.items() | list }} {{ d.keys() | list }} {{ d.get('x') }} {{ d.get('x', 1) }} {{ "
                   "d['a'] }} {{ d.items is defined }} {{ d['items'] }} {{ d.z is defined }} {{ d | length "
                   "}} {{ dict(a=1, b=2) }} {{ dict([['k', 'v']]) }} {{ {'a': 1, 'a': 2} }}",
                   "{\"d\": {\"a\": 1, \"items\": [2]}}"),
            "[('a', 1), ('items', [2])] ['a', 'items'] None 1 1 True [2] False 2 {'a': 1, 'b': 2} {'k': 'v'} "
            "{'a': 2}");
  EXPECT_EQ(
      render("{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A', 'c'] | "
             "sort(case_sensitive=true) }} {{ [3, 1, 2] | sort(reverse=true) }} {{ l | sort(attribute='n') | "
             "map(attribute='v') | join }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'A': 2} | "
             "dictsort(by='value') }} {{ {'b': 1, 'A': 2} | dictsort(true, reverse=true) }}",
             "{\"l\": [{\"n\": 2, \"v\": \"a\"}, {\"n\": 1, \"v\": \"b\"}, {\"n\": 2, \"v\": \"c\"}]}"),
      "[1, 2, 3] ['A', 'b', 'c'] ['A', 'b', 'c'] [3, 2, 1] bac [('A', 2), ('b', 1)] [('b', 1), ('A', 2)] "
      "[('b', 1), ('A', 2)]");
  EXPECT_EQ(
      render("{{ l | map(attribute='a.0') | list }} {{ l | map(attribute='b', default='-') | list }} {{ l | "
             "selectattr('b') | list }} {{ l | rejectattr('b', 'defined') | list | length }} {{ [1, 2, 3, 4] "
             "| select('gt', 2) | list }} {{ ['x', ''] | reject | list }} {{ [1, 2] | map('string') | "
             "map('upper') | join('+') }} {{ l | sum(attribute='n') }} {{ [1, 2, 3] | sum(start=10) }}",
             "{\"l\": [{\"a\": [5], \"n\": 1}, {\"a\": [6], \"b\": 7, \"n\": 2}]}"),
      "[5, 6] ['-', 7] [{'a': [6], 'b': 7, 'n': 2}] 1 [3, 4] [''] 1+2 3 16");
  EXPECT_EQ(
      render(
          "{{ [] | first is defined }} {{ [1, 2] | last }} {{ 'abc' | first }} {{ 'abc' | last }} {{ [1, 5, "
          "2] | max }} {{ ['b', 'A'] | min }} {{ ['a', 'A', 'b'] | unique | list }} {{ [1, 2, 3] | batch(2) "
          "| list }} {{ [1, 2, 3] | batch(2, 0) | list }} {{ 'abc' | list }} {{ 'abc' | reverse }} {{ [1, 2] "
          "| reverse | list }} {{ range(5, 0, -2) | list }} {{ [[1, 2], [3]] | sum(start=[]) }}"),
      "False 2 a c 5 A ['a', 'b'] [[1, 2], [3]] [[1, 2], [3, 0]] ['a', 'b', 'c'] cba [2, 1] [5, 3, 1] [1, 2, "
      "3]");
  EXPECT_EQ(render("{{ l[0] }}{{ l[-1] }}{{ l[9] is defined }}{{ l[1:] }}{{ l[:-1] }}{{ l[::2] }}{{ l.0 }}{{ "
                   "l[none:2] }}{{ l.index(2) }}{{ l.count(3) }}{{ 2 in l }}{{ 9 not in l }}{{ l[true] }}",
                   "{\"l\": [1, 2, 3]}"),
            "13False[2, 3][1, 2][1, 3]1[1, 2]11TrueTrue2");
  EXPECT_EQ(render("{{ 'yes' if ([] | map('upper')) else 'no' }} {% set g = [1, 2] | map('string') %}{{ g | "
                   "join }}{{ g | join }}|"),
            "yes 12|");
  EXPECT_EQ(render("{{ x | default('d') }} {{ none | default('d') }} {{ none | default('d', true) }} {{ '' | "
                   "d('e', boolean=true) }} {{ (d.x is defined) and d.x.y }} {{ nothing | length }} {{ "
                   "nothing | list }} {{ nothing | join }} {{ nothing == nothing2 }} {{ 'x' in nothing }}",
                   "{\"d\": {}}"),
            "d None d e False 0 []  True False");
  EXPECT_EQ(
      render("{{ 1 is number }} {{ true is number }} {{ true is integer }} {{ 1.0 is float }} {{ 'a' is "
             "sequence }} {{ {} is sequence }} {{ {} is iterable }} {{ 1 is iterable }} {{ none is none }} "
             "{{ x is none }} {{ range is callable }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ 'a' is "
             "eq 'a' }} {{ 1 is ne 2 }} {{ true is true }} {{ 1 is true }} {{ 'a' is not string }}"),
      "True True False True True True True False True False True True True True True True False False");
}

TEST(Jinja, Json) {
  EXPECT_EQ(render("{{ x | tojson }}",
                   "{\"x\": {\"s\": \"\303\251\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\177<>&'\", \"n\": [1, -2.5, "
                   "1e+21, 1e-07, 1e+20], \"b\": [true, false, null], \"e\": [{}, []], \"\": 0}}"),
            "{\"s\": \"\303\251\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\177<>&'\", \"n\": [1, -2.5, 1e+21, 1e-07, "
            "1e+20], \"b\": [true, false, null], \"e\": [{}, []], \"\": 0}");
  EXPECT_EQ(render("{{ x | tojson(indent=2) }}\n{{ x | tojson(indent=0) }}\n{{ x | tojson(separators=(',', "
                   "':')) }}\n{{ x | tojson(sort_keys=true) }}\n{{ x | tojson(ensure_ascii=true) }}\n{{ x | "
                   "tojson(indent='--', separators=[';', '=']) }}",
                   "{\"x\": {\"b\": [1, {\"c\": []}], \"a\": \"\303\251\360\237\230\200\"}}"),
            "{\n  \"b\": [\n    1,\n    {\n      \"c\": []\n    }\n  ],\n  \"a\": "
            "\"\303\251\360\237\230\200\"\n}\n{\n\"b\": [\n1,\n{\n\"c\": []\n}\n],\n\"a\": "
            "\"\303\251\360\237\230\200\"\n}\n{\"b\":[1,{\"c\":[]}],\"a\":\"\303\251\360\237\230\200\"}\n{"
            "\"a\": \"\303\251\360\237\230\200\", \"b\": [1, {\"c\": []}]}\n{\"b\": [1, {\"c\": []}], \"a\": "
            "\"\\u00e9\\ud83d\\ude00\"}\n{\n--\"b\"=[\n----1;\n----{\n------\"c\"=[]\n----}\n--];\n--\"a\"="
            "\"\303\251\360\237\230\200\"\n}");
  EXPECT_EQ(render("{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }} {{ (1, 2) | tojson }} {{ 'a' | tojson }} "
                   "{{ 1.0 | tojson }} {{ [] | tojson(indent=2) }}"),
            "{\"1\": 4, \"null\": 3, \"1.5\": 5} [1, 2] \"a\" 1.0 []");
}

TEST(Jinja, WhiteSpace) {
  EXPECT_EQ(render("a\n  {% if true %}\n    b\n  {% endif %}\nc\n"), "a\n    b\nc");
  EXPECT_EQ(render("a\n  {%- if true -%}\n    b\n  {%- endif -%}\nc\n\n"), "abc\n");
  EXPECT_EQ(render("a\r\n{% if true %}\r\nb\r\n{% endif %}\r\nc"), "a\nb\nc");
  EXPECT_EQ(render("  {%+ if true %} a {%+ endif +%}\nb"), "   a \nb");
  EXPECT_EQ(render("a {{- 1 -}} b {{ 2 }} \n c"), "a1b 2 \n c");
  EXPECT_EQ(render("{# x #}\na\n  {# y #}  \nb {#- z -#}\n c {#+ k #}"), "a\n  \nbc ");
  EXPECT_EQ(render("  {# at the start #}x\n\t{% set y = 1 %}\n  z"), "x\n  z");
  EXPECT_EQ(render("x {% raw %} {{ a }} {% b %} {# c #} {% endraw %} y"), "x  {{ a }} {% b %} {# c #}  y");
  EXPECT_EQ(render("x\n  {%- raw -%}  {{ a }}  {%- endraw -%}  y"), "x{{ a }}y");
  EXPECT_EQ(render("x\n  {% raw %}\n{{ a }}\n  {% endraw %}\n  y"), "x\n\n{{ a }}\n  y");
  EXPECT_EQ(render("{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': {}}}}|{{ '}}' }}{{ \"%}\" }}{% set x = '%}' %}{{ "
                   "x }}{ { %} }}"),
            "1{'a': {}}|}}%}%}{ { %} }}");
  EXPECT_EQ(render("{{ '{{' }}{{'{%'}} {"), "{{{% {");
  EXPECT_EQ(render("{% if true %}x{% endif %}  \n  {% if true %}\n\n{% endif %}"), "x  \n\n");
  EXPECT_EQ(render("\n\n"), "\n");
  EXPECT_EQ(render("a\n{{ 1 }}\n{% set x = 1 %}{# c #}\n  {% set x = 2 %}   \nb"), "a\n1\n   \nb");
}

TEST(Jinja, Dates) {
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %Y %B %A %a %j %y %p %I %%') }} {{ "
                   "strftime_now('%-d/%-m') }}"),
            "2026-11-30 00:53:20 30 Nov 2026 November Monday Mon 334 26 AM 12 % 30/11");
}

TEST(Jinja, ErrorsSayWhereAndWhy) {
  EXPECT_EQ(error_of("a\n{{ 'x' | nosuch }}"), "t.jinja, line 2, column 10: there is no filter 'nosuch'");
  EXPECT_EQ(error_of("{{ x is nosuch }}"), "t.jinja, line 1, column 9: there is no test 'nosuch'");
  EXPECT_EQ(error_of("{{ 'x'.nosuch() }}"), "t.jinja, line 1, column 8: a string has no attribute 'nosuch'");
  EXPECT_EQ(error_of("\n\n  {{ a.b }}"), "t.jinja, line 3, column 8: 'a' is undefined");
  EXPECT_EQ(error_of("{{ 'x' + d.no }}", R"({"d": {}})"),
            "t.jinja, line 1, column 8: a dict has no attribute 'no'");
  EXPECT_EQ(error_of("{{ 'x' + none }}"), "t.jinja, line 1, column 8: a string + none is not possible");
  EXPECT_EQ(error_of("{{ raise_exception('No\nway') }}"),
            "t.jinja, line 1, column 4: the template refuses this conversation: 'No\\x0away'");
  EXPECT_THAT(error_of("{% include 'x' %}"),
              StartsWith("t.jinja, line 1, column 4: there is no tag 'include' here"));
  EXPECT_THAT(error_of("{% if x %}"), HasSubstr("the template ends where endif is wanted"));
  EXPECT_THAT(error_of("a {{ x"), HasSubstr("line 1, column 3: the tag has no end (}})"));
  EXPECT_THAT(error_of("{{ 'x }}"), HasSubstr("the string has no end"));
  EXPECT_THAT(error_of("{{ 1 ? 2 }}"), HasSubstr("belongs to no expression"));
  EXPECT_THAT(error_of("{{ (1] }}"), HasSubstr("']' closes nothing"));
  EXPECT_THAT(error_of("{{ f(a=1, 2) }}"), HasSubstr("an argument without a name"));
  EXPECT_THAT(error_of("{% break %}"), HasSubstr("belong into a loop"));
  EXPECT_THAT(error_of("{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}"),
              HasSubstr("into a loop"));
}

TEST(Jinja, RefusesWhatPythonRefuses) {
  EXPECT_THAT(error_of("{{ 1 / 0 }}"), HasSubstr("division by zero"));
  EXPECT_THAT(error_of("{{ 9223372036854775807 + 1 }}"), HasSubstr("more than 64 bits"));
  EXPECT_THAT(error_of("{{ 1 < 'a' }}"), HasSubstr("an integer and a string have no order"));
  EXPECT_THAT(error_of("{{ 1 in 'a' }}"), HasSubstr("'in' a string"));
  EXPECT_THAT(error_of("{{ 5 | length }}"), HasSubstr("an integer has no length"));
  EXPECT_THAT(error_of("{{ x | tojson }}"), HasSubstr("'x' is undefined"));
  EXPECT_THAT(error_of("{{ [1] | items }}"), HasSubstr("a dict is wanted"));
  EXPECT_THAT(error_of("{{ {'a': 1}.update({}) }}"), HasSubstr("changes a dict"));
  EXPECT_THAT(error_of("{% for x in 5 %}{% endfor %}"), HasSubstr("an integer cannot be iterated over"));
  EXPECT_THAT(error_of("{% set a, b = [1] %}"), HasSubstr("1 values cannot be assigned to 2 names"));
  EXPECT_THAT(error_of("{% set d.x = 1 %}", R"({"d": {}})"), HasSubstr("attributes of a namespace() only"));
  EXPECT_THAT(error_of("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
              HasSubstr("takes at most 1 arguments"));
  EXPECT_THAT(error_of("{% macro m(a) %}{% endmacro %}{{ m(b=2) }}"), HasSubstr("has no parameter 'b'"));
  EXPECT_THAT(error_of("{{ [1] | map('upper') }}"), HasSubstr("a generator cannot be written as text"));
  EXPECT_THAT(error_of("{{ {[]: 1} }}"), HasSubstr("a list cannot be the key of a dict"));
  EXPECT_THAT(error_of("{{ n }}", R"({"n": 18446744073709551615})"), HasSubstr("is too large"));
}

TEST(Jinja, MarkupEscapesWhatIsAddedToIt) {
  EXPECT_EQ(render("{{ '<'|safe + '<\"' }}{{ '<' + '>'|safe }}{{ '<'|safe ~ '<' }}{{ ('<'|e).strip() + '>' }}"
                   "{{ '&'|e|e }}{{ '<'|safe|string + '&' }}"),
            "<&lt;&#34;&lt;><<&lt;&gt;&amp;<&amp;");
}

TEST(Jinja, ListsCanBeAppendedTo) {
  EXPECT_EQ(
      render("{% set l = [] %}{% set _ = l.append('a') %}{% set _ = l.append(1) %}{{ l.pop(0) }}{{ l }}"),
      "a[1]");
  EXPECT_THAT(error_of("{% set l = [] %}{% set _ = l.append(l) %}"), HasSubstr("append() of a list"));
  EXPECT_THAT(error_of("{{ [].pop() }}"), HasSubstr("no such item"));
}

std::string repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

TEST(Jinja, HostileTemplatesAreBounded) {
  EXPECT_THAT(error_of(std::string(Template::kMaxSource + 1, 'x')), HasSubstr("the limit is 1048576"));
  EXPECT_THAT(error_of("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}"),
              HasSubstr("too deeply"));
  EXPECT_THAT(error_of("{{ " + repeated("not ", 5000) + "1 }}"), HasSubstr("too deeply"));
  EXPECT_THAT(error_of("{{ " + repeated("[", 5000) + repeated("]", 5000) + " }}"), HasSubstr("too deeply"));
  EXPECT_THAT(error_of(repeated("{% if 1 %}", 5000)), HasSubstr("too deeply"));
  EXPECT_THAT(error_of("{{ x" + repeated(".a", 5000) + " }}"), HasSubstr("too long"));
  EXPECT_THAT(error_of("{{ x" + repeated("|d", 5000) + " }}"), HasSubstr("too long"));
  EXPECT_THAT(error_of("{{ 1" + repeated(" if 1 else 1", 5000) + " }}"), HasSubstr("too deeply"));
  EXPECT_EQ(render("{{ 0" + repeated(" + 1", 5000) + " }}"), "5000");
  EXPECT_THAT(error_of("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("calls itself too deeply"));
  EXPECT_THAT(
      error_of("{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      HasSubstr("nests more than 128 levels"));
  EXPECT_THAT(error_of("{% for i in range(1000000) %}{% for j in range(1000000) %}{% endfor %}{% endfor %}"),
              HasSubstr("too much work"));
  EXPECT_THAT(error_of("{{ range(1000000000000) | length }}"), HasSubstr("too much work"));
  EXPECT_THAT(error_of("{{ 'x' * 1000000000000 }}"), HasSubstr("too much work"));
  EXPECT_THAT(error_of("{{ [1] * 1000000000000 }}"), HasSubstr("too much work"));
  EXPECT_THAT(error_of("{{ '%9999999d' % 1 }}"), HasSubstr("more than 1000 characters"));
  const std::string doubling = "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}";
  EXPECT_THAT(error_of(doubling + "{% set ns.s = ns.s + ns.s %}{% endfor %}", "{}", 100'000'000),
              HasSubstr("more than 64 MiB"));
  EXPECT_THAT(error_of(doubling + "{% set ns.s = ns.s + ns.s %}{% endfor %}"), HasSubstr("too much work"));
  EXPECT_THAT(
      error_of(
          "{% set ns = namespace(l=[0]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
          "{{ ns.l }}"),
      HasSubstr("too much work"));
  EXPECT_THAT(error_of("{{ x }}", R"({"x": )" + repeated("[", 500) + repeated("]", 500) + "}"),
              HasSubstr("nests more than 128 levels"));
  // What holds itself is freed all the same (the leak checker of the sanitized build looks).
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.l = [ns] %}ok"), "ok");
  EXPECT_EQ(render("{% macro m() %}{% endmacro %}{% set f = [m] %}ok"), "ok");
}

/// The text with what came from outside in brackets.
std::string marked(const std::string& source, const std::string& variables) {
  const Text text = render_text(source, variables);
  std::string out;
  size_t at = 0;
  for (const auto& [begin, end] : text.content()) {
    EXPECT_LT(begin, end);
    EXPECT_LE(at, begin);
    out += text.bytes().substr(at, begin - at) + "[" + text.bytes().substr(begin, end - begin) + "]";
    at = end;
  }
  return out + text.bytes().substr(at);
}

TEST(Jinja, KnowsWhatCameFromOutside) {
  const std::string given = R"({"s": " a-b ", "d": {"k<": ["x\"y", 1]}, "t": "ÀB"})";
  EXPECT_EQ(marked("{{ eos_token }}{{ s }}!", given), "<|im_end|>[ a-b ]!");
  EXPECT_EQ(marked("{{ '<' + s + '>' }}{{ '<' ~ s ~ '>' }}", given), "<[ a-b ]><[ a-b ]>");
  EXPECT_EQ(marked("{{ s.strip() }}.{{ s | trim }}.{{ s[1:3] }}.{{ s[::-1] }}.{{ s.split('-') | join('+') }}",
                   given),
            "[a-b].[a-b].[a-].[ b-a ].[ a]+[b ]");
  EXPECT_EQ(marked("{{ s.replace('-', '<>') }}{{ 'x-y'.replace('-', s) }}", given), "[ a]<>[b ]x[ a-b ]y");
  EXPECT_EQ(marked("{{ t.lower() }}{{ t | title }}{{ (s ~ 'q') | upper }}", given), "[àbÀb A-B ]Q");
  EXPECT_EQ(marked("{{ d | tojson }}", given), R"({"[k<]": ["[x\"y]", 1]})");
  EXPECT_EQ(marked("{{ d }}", given), R"({'[k<]': ['[x"y]', 1]})");
  EXPECT_EQ(marked("{% for k, v in d.items() %}{{ k }}:{{ v[0] }}{% endfor %}{{ d | list | first }}", given),
            R"([k<]:[x"yk<])");
  EXPECT_EQ(
      marked(
          "{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(s) }}{% set b %}({{ s }}){% endset %}{{ b | trim }}",
          given),
      "<[ a-b ]>([ a-b ])");
  EXPECT_EQ(marked("{{ '%s|%5s' % (s, t) }}{{ '{}|{:>5}'.format(s, t) }}", given),
            "[ a-b ]|   [ÀB a-b ]|   [ÀB]");
  EXPECT_EQ(marked("{{ (s ~ '\\n' ~ s) | indent(2) }}{{ s * 2 }}{{ [s, 'x'] | join(s) }}", given),
            "[ a-b ]\n  [ a-b  a-b  a-b  a-b  a-b ]x");
  EXPECT_EQ(marked("{% for c in s %}{{ c }}{% endfor %}{{ s | list | join('.') }}", given),
            "[ a-b  ].[a].[-].[b].[ ]");
  EXPECT_EQ(marked("{{ s | escape }}{{ '<' | escape }}{{ s | default('x') }}{{ no | default(s) }}", given),
            "[ a-b ]&lt;[ a-b  a-b ]");
}

TEST(Jinja, SaysWhichVariablesATemplateReads) {
  const Template parsed("t", "{% set written = 1 %}{% if tools %}{{ messages[0].content }}{% endif %}");
  EXPECT_TRUE(parsed.reads("tools"));
  EXPECT_TRUE(parsed.reads("messages"));
  EXPECT_FALSE(parsed.reads("written"));
  EXPECT_FALSE(parsed.reads("content"));
}

}  // namespace
}  // namespace redlite::chat::jinja
