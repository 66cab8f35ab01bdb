// Writes the seed corpus of a fuzz target: small valid files of every structure that the readers know, from
// which the fuzzer starts.
//
// usage: make_fuzz_corpus TARGET FOLDER

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "chat/chat.h"
#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "model/model.h"
#include "quant/type.h"
#include "session/state_file.h"
#include "state_shape.h"
#include "tokenizer/tokenizer.h"
#include "trace/trace.h"

namespace redlite {
namespace {

namespace fs = std::filesystem;
using gguf::make_array;

/// Bytes that decode to small values in F32 and to something in every block format.
std::vector<std::byte> weight_bytes(quant::Type type, size_t n_bytes) {
  std::vector<std::byte> bytes(n_bytes);
  for (size_t i = 0; i < n_bytes; ++i) bytes[i] = static_cast<std::byte>((i * 37 + i / 7) % 61);
  if (type == quant::Type::F32) {
    for (size_t i = 0; i + 4 <= n_bytes; i += 4) {
      const float value = std::sin(static_cast<float>(i) * 0.7f) * 0.5f;
      std::memcpy(&bytes[i], &value, 4);
    }
  }
  return bytes;
}

/// Declares tensors, then writes them all.
class Tensors {
 public:
  explicit Tensors(gguf::Writer& writer) : writer_(writer) {}

  void add(std::string name, std::vector<uint64_t> shape, quant::Type type = quant::Type::F32) {
    uint64_t rows = 1;
    for (size_t d = 1; d < shape.size(); ++d) rows *= shape[d];
    sizes_.emplace_back(type, quant::row_bytes(type, shape[0]) * rows);
    writer_.add_tensor(std::move(name), std::move(shape), type);
  }
  void write() {
    writer_.begin_data();
    for (const auto& [type, bytes] : sizes_) writer_.write(weight_bytes(type, bytes));
    writer_.finish();
  }

 private:
  gguf::Writer& writer_;
  std::vector<std::pair<quant::Type, size_t>> sizes_;
};

void write_every_value(const std::string& path) {
  gguf::Writer writer(path, 8);
  writer.add("u8", uint8_t{1});
  writer.add("i8", int8_t{-1});
  writer.add("u16", uint16_t{1});
  writer.add("i16", int16_t{-1});
  writer.add("u32", uint32_t{1});
  writer.add("i32", int32_t{-1});
  writer.add("f32", 1.0f);
  writer.add("bool", true);
  writer.add("string", std::string("text"));
  writer.add("u64", uint64_t{1});
  writer.add("i64", int64_t{-1});
  writer.add("f64", 1.0);
  writer.add("u8s", make_array(std::vector<uint8_t>{1, 2}));
  writer.add("i8s", make_array(std::vector<int8_t>{1, -2}));
  writer.add("u16s", make_array(std::vector<uint16_t>{1, 2}));
  writer.add("i16s", make_array(std::vector<int16_t>{1, -2}));
  writer.add("u32s", make_array(std::vector<uint32_t>{1, 2}));
  writer.add("i32s", make_array(std::vector<int32_t>{1, -2}));
  writer.add("f32s", make_array(std::vector<float>{1, -2}));
  writer.add("bools", make_array(std::vector<bool>{true, false}));
  writer.add("strings", make_array(std::vector<std::string>{"a", "", "bc"}));
  writer.add("u64s", make_array(std::vector<uint64_t>{1}));
  writer.add("i64s", make_array(std::vector<int64_t>{-1}));
  writer.add("f64s", make_array(std::vector<double>{1}));
  using Nested = std::vector<std::shared_ptr<const gguf::Array>>;
  const auto inner = std::make_shared<const gguf::Array>(gguf::Array{std::vector<int32_t>{7}});
  writer.add("nested", make_array(Nested{inner, inner}));
  writer.begin_data();
  writer.finish();
}

void write_one_of_each_type(const std::string& path) {
  gguf::Writer writer(path);
  Tensors tensors(writer);
  for (const quant::TypeInfo& type : quant::all_types()) {
    tensors.add(std::string(type.name), {type.block_values}, type.type);
  }
  tensors.add("four dimensions", {4, 3, 2, 1});
  tensors.write();
}

void write_one_of_one_split(const std::string& path) {
  gguf::Writer writer(path);
  writer.add("split.no", uint16_t{0});
  writer.add("split.count", uint16_t{1});
  writer.add("split.tensors.count", int32_t{0});
  writer.begin_data();
  writer.finish();
}

/// The smallest models that are whole: a vocabulary of bytes would be half the file, so there are 8 tokens.
struct ModelKind {
  std::string architecture = "qwen3next";
  bool old_projections = false;  ///< ssm_in
  bool fused_experts = false;    ///< ffn_gate_up_exps
  bool tied = false;
  bool mtp = false;
  quant::Type matrices = quant::Type::F32;  ///< where rows are of whole blocks
};

void write_tokenizer(gguf::Writer& writer, const ModelKind& kind) {
  writer.add("tokenizer.ggml.model", std::string("gpt2"));
  writer.add("tokenizer.ggml.pre", std::string(kind.architecture == "qwen35moe" ? "qwen35" : "qwen2"));
  writer.add("tokenizer.ggml.tokens", make_array(std::vector<std::string>{"a", "b", "ab", "\xc4\xa0", "!",
                                                                          "<|im_end|>", "\xc3\xa9", "x"}));
  writer.add("tokenizer.ggml.token_type", make_array(std::vector<int32_t>{1, 1, 1, 1, 1, 3, 4, 1}));
  writer.add("tokenizer.ggml.merges", make_array(std::vector<std::string>{"a b"}));
  writer.add("tokenizer.ggml.eos_token_id", uint32_t{5});
  writer.add("tokenizer.ggml.add_bos_token", false);
  writer.add("tokenizer.chat_template", std::string("{{'<|im_start|>' + messages[0].content}}<|im_end|>"));
}

void write_model(const std::string& path, const ModelKind& kind) {
  const bool delta_net = kind.architecture != "qwen3moe";
  const uint32_t embd = std::max(4u, quant::info(kind.matrices).block_values);
  const uint32_t ff = embd;
  constexpr uint32_t kVocab = 8, kHeads = 2, kHeadDim = 4, kExperts = 3, kState = 2, kKHeads = 1, kVHeads = 2;
  constexpr uint32_t kKey = kKHeads * kState, kValue = kVHeads * kState, kConv = 2 * kKey + kValue;
  const uint32_t layers = 2;
  const uint32_t blocks = layers + (kind.mtp ? 1 : 0);

  gguf::Writer writer(path);
  const auto set = [&](const std::string& key, gguf::Value value) {
    writer.add(kind.architecture + "." + key, std::move(value));
  };
  writer.add("general.architecture", kind.architecture);
  set("block_count", blocks);
  set("embedding_length", embd);
  set("context_length", uint32_t{64});
  set("attention.head_count", kHeads);
  set("attention.head_count_kv", uint32_t{1});
  set("attention.key_length", kHeadDim);
  set("attention.value_length", kHeadDim);
  set("attention.layer_norm_rms_epsilon", 1e-6f);
  set("rope.dimension_count", uint32_t{2});
  set("rope.freq_base", 1e4f);
  set("expert_count", kExperts);
  set("expert_used_count", uint32_t{2});
  set("expert_feed_forward_length", ff);
  if (delta_net) {
    set("expert_shared_feed_forward_length", ff);
    set("ssm.conv_kernel", uint32_t{2});
    set("ssm.state_size", kState);
    set("ssm.group_count", kKHeads);
    set("ssm.time_step_rank", kVHeads);
    set("ssm.inner_size", kValue);
    set("full_attention_interval", layers);
  }
  if (kind.architecture == "qwen35moe")
    set("rope.dimension_sections", make_array(std::vector<int32_t>{1, 1, 0, 0}));
  if (kind.mtp) set("nextn_predict_layers", uint32_t{1});
  write_tokenizer(writer, kind);

  Tensors tensors(writer);
  tensors.add("token_embd.weight", {embd, kVocab});
  tensors.add("output_norm.weight", {embd});
  if (!kind.tied) tensors.add("output.weight", {embd, kVocab});
  for (uint32_t i = 0; i < blocks; ++i) {
    const auto add = [&](const std::string& name, const std::vector<uint64_t>& shape) {
      const bool whole = shape.size() > 1 && shape[0] % quant::info(kind.matrices).block_values == 0;
      tensors.add(fmt::format("blk.{}.{}", i, name), shape, whole ? kind.matrices : quant::Type::F32);
    };
    add("attn_norm.weight", {embd});
    if (i >= layers) continue;
    add(delta_net ? "post_attention_norm.weight" : "ffn_norm.weight", {embd});
    if (!delta_net || i == layers - 1) {
      add("attn_q.weight", {embd, kHeads * kHeadDim * (delta_net ? 2 : 1)});
      add("attn_k.weight", {embd, kHeadDim});
      add("attn_v.weight", {embd, kHeadDim});
      add("attn_output.weight", {kHeads * kHeadDim, embd});
      add("attn_q_norm.weight", {kHeadDim});
      add("attn_k_norm.weight", {kHeadDim});
    } else {
      if (kind.old_projections) {
        add("ssm_in.weight", {embd, kConv + kValue});
      } else {
        add("attn_qkv.weight", {embd, kConv});
        add("attn_gate.weight", {embd, kValue});
      }
      if (kind.architecture == "qwen35moe") {
        add("ssm_beta.weight", {embd, kVHeads});
        add("ssm_alpha.weight", {embd, kVHeads});
      } else {
        add("ssm_ba.weight", {embd, 2 * kVHeads});
      }
      add("ssm_conv1d.weight", {2, kConv});
      add("ssm_dt.bias", {kVHeads});
      add("ssm_a", {kVHeads});
      add("ssm_norm.weight", {kState});
      add("ssm_out.weight", {kValue, embd});
    }
    add("ffn_gate_inp.weight", {embd, kExperts});
    if (kind.fused_experts) {
      add("ffn_gate_up_exps.weight", {embd, 2 * ff, kExperts});
    } else {
      add("ffn_gate_exps.weight", {embd, ff, kExperts});
      add("ffn_up_exps.weight", {embd, ff, kExperts});
    }
    add("ffn_down_exps.weight", {ff, embd, kExperts});
    if (delta_net) {
      add("ffn_gate_inp_shexp.weight", {embd});
      add("ffn_gate_shexp.weight", {embd, ff});
      add("ffn_up_shexp.weight", {embd, ff});
      add("ffn_down_shexp.weight", {ff, embd});
    }
  }
  tensors.write();
}

/// Version 2 differs from 3 by its number only.
void make_version_2(const std::string& path) {
  std::string bytes = read_text_file(path);
  bytes[4] = 2;
  write_file_atomically(path, std::as_bytes(std::span(bytes)));
}

/// A seed that is refused would be of no use.
void check_seed(const std::string& path) {
  const model::Model model(path);
  const tokenizer::Tokenizer tokenizer(model.file());
  chat::render_user_message(model.file(), "a");
}

void write_models(const fs::path& folder) {
  const auto write = [&](const char* name, const ModelKind& kind) {
    write_model(folder / name, kind);
    check_seed((folder / name).string());
  };
  write("qwen3next.gguf", {});
  write("qwen3next_old.gguf", {.old_projections = true, .tied = true});
  write("qwen3next_fused_mtp.gguf", {.fused_experts = true, .mtp = true});
  write("qwen3next_q8_0.gguf", {.matrices = quant::Type::Q8_0});
  write("qwen35moe.gguf", {.architecture = "qwen35moe"});
  write("qwen3moe.gguf", {.architecture = "qwen3moe"});
}

/// A prompt of three tokens and two more, experts in turn.
void write_trace(const std::string& path, int n_experts, int n_used, int n_predicted) {
  trace::Trace t;
  t.model = "seed";
  t.n_layers = 3;
  t.n_experts = n_experts;
  t.n_used = n_used;
  t.n_predicted = n_predicted;
  t.dense_bytes = 1000;
  t.layers = {{4000, 4096}, {5000, 8192}, {4000, 4096}};
  t.chunks = {3, 1, 1};
  t.tokens = {1, 2, 3, 4, 5};
  const auto fill = [&](std::vector<uint16_t>& ids, int groups, int width) {
    for (int i = 0; i < groups * width; ++i)
      ids.push_back(static_cast<uint16_t>((i / width + i) % n_experts));
  };
  fill(t.selected, 15, n_used);
  fill(t.predicted, 10, n_predicted);
  trace::write_trace(path, t);
}

/// The first byte chooses how the answer is cut and read.
void write_answers(const fs::path& folder) {
  constexpr std::pair<const char*, std::string_view> kAnswers[] = {
      {"json",
       "\x39<think>\na\n</think>\n\nb\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
       "\"</tool_call>\\\"\"}}\n"
       "</tool_call>\n<tool_call>{\"name\": \"g\"}</tool_call> c"},
      {"xml",
       "\x2b"
       "a</think><tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>\n<parameter=b>\n1\n</parameter>\n"
       "</function>\n</tool_call>"},
      {"loose", "\x18<function=f>\n<parameter=c>\n[1, \"</parameter>\"]\n<parameter=a>\nx</function>"},
      {"odd",
       "\x1c<tool_call>{\"arguments\": \"{}\", \"name\": \"f\"}</tool_call><tool_call>{\"name\": \"f\", "
       "\"x\": [1], "
       "\"arguments\": \"{\\\"a\\\": 1}\"}"},
      {"text", "\x51<think>a</think>```<tool_call>```"},
  };
  for (const auto& [name, text] : kAnswers)
    write_file_atomically(folder / name, std::as_bytes(std::span(text)));
}

void write_schemas(const fs::path& folder) {
  constexpr std::pair<const char*, std::string_view> kSchemas[] = {
      {"object",
       R"({"type": "object", "properties": {"a": {"type": "string", "minLength": 1, "maxLength": 5}, "b": {"type": "integer", "minimum": -5, "exclusiveMaximum": 70}}, "required": ["a"], "additionalProperties": {"type": "null"}})"},
      {"recursive",
       R"({"$ref": "#/$defs/t", "$defs": {"t": {"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}, "l": {"type": "array", "items": {"$ref": "#/$defs/t"}, "maxItems": 3}}}}})"},
      {"branches",
       R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]}, {"type": "object", "properties": {"k": {"enum": ["b", 1]}}, "required": ["k"]}], "allOf": [{"required": ["x"]}, {"properties": {"x": {"type": ["number", "boolean"], "multipleOf": 0.01}}}]})"},
      {"patterns",
       R"x({"type": "array", "prefixItems": [{"type": "string", "pattern": "^(a|[^b-d\\n]{2,3})+$"}, {"format": "date-time"}, {"type": "number", "minimum": 0.25, "maximum": 12.5}], "items": {"type": "string", "pattern": "x.*y"}, "minItems": 3, "maxItems": 5})x"},
      {"map",
       R"({"type": "object", "patternProperties": {"^x-": {}}, "additionalProperties": false, "minProperties": 1, "maxProperties": 2})"},
  };
  for (const auto& [name, text] : kSchemas)
    write_file_atomically(folder / name, std::as_bytes(std::span(text)));
}

/// Templates that use every part of the language, of which the fuzzer makes others.
void write_templates(const fs::path& folder) {
  constexpr std::pair<const char*, std::string_view> kTemplates[] = {
      {"loop",
       "{%- for m in messages if m.role != 'tool' -%}\n<|{{ m['role'] }}|>{{ loop.index0 }}{{ loop.last }}"
       "{{ m.content | trim }}{% if loop.first %}{% continue %}{% else %}{% break %}{% endif %}"
       "{% else %}none{%- endfor %}"},
      {"recursive",
       "{% for x in [[1, [2]], 3] recursive %}{% if x is iterable %}{{ loop(x) }}{% endif %}"
       "{{ loop.depth }}{% endfor %}"},
      {"namespace",
       "{% set ns = namespace(a=0, l=[]) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}"
       "{% set _ = ns.l.append(i) %}{% endfor %}{{ ns.a }}{{ ns.l.pop(0) }}"},
      {"macro",
       "{% macro m(a, b='x') %}{{ a ~ b }}{{ caller() if caller }}{% endmacro %}"
       "{% macro n(a, b=1) %}{{ a }}{{ varargs }}{{ kwargs | tojson }}{{ n(a - 1) if a else '' }}{% endmacro "
       "%}"
       "{% call m(2) %}in{% endcall %}{{ n(*[1, 2], **{'k': 3}) }}"},
      {"blocks",
       "{% set x | upper %}a{{ 1 }}{% endset %}{% filter indent(2, true) %}{{ x }}\nb{% endfilter %}"
       "{% with y = 2 %}{{ y }}{% endwith %}{% generation %}z{% endgeneration %}{# c #}{% raw %}{{ }}{% "
       "endraw %}"},
      {"filters",
       "{{ tools | tojson(indent=2) }}{{ messages | map(attribute='role') | join(',') }}"
       "{{ messages | selectattr('content', 'defined') | list | length }}{{ [3, 1.5] | sort | sum | round(1) "
       "}}"
       "{{ {'b': 1, 'A': 2} | dictsort }}{{ 'a-b' | replace('-', '+') | title }}{{ no | default('d', true) }}"
       "{{ '%5.2f|%s' % (1, 'x') }}{{ '{:>5}{0}'.format('a') if false else '{:*^7}'.format('a') }}"},
      {"strings",
       "{{ messages[0].content.split('l')[-1][::-1].upper().strip(' !') }}{{ 'x' * 3 }}"
       "{{ '\\u00e9\\n' ~ 'a'.replace('', '.') }}{{ 'Stra\xc3\x9f"
       "e'.upper() }}{{ 1 < 2 <= 2 != 3 }}"
       "{{ 2 ** 3 // -2 % 5 }}{{ 'a' if x is none else 'b' in 'abc' }}"},
      {"refusal", "{{ raise_exception('no') if not messages else strftime_now('%d %b %Y') }}"},
  };
  for (const auto& [name, text] : kTemplates)
    write_file_atomically(folder / name, std::as_bytes(std::span(text)));
}

/// States of one token and of many, with every number of marks.
void write_states(const fs::path& folder) {
  const session::StateShape shape = testing::fuzzed_state_shape();
  for (const int n : {1, 20, 64}) {
    session::StateHead head;
    for (int i = 0; i < n; ++i) head.tokens.push_back(i * 7 % shape.n_vocab);
    std::vector<std::byte> positions(shape.position_bytes * static_cast<size_t>(n)), mark(shape.mark_bytes);
    for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::byte>(i * i / 7);
    std::vector<std::span<const std::byte>> marks;
    for (int i = 0; i < std::min(n - 1, session::kMostMarks); ++i) {
      head.marks.push_back(n / 4 + i + 1);
      marks.emplace_back(mark);
    }
    session::write_state_file(folder / fmt::format("{}.rlstate", n), shape, head, positions, marks);
  }
}

void write_texts(const fs::path& folder,
                 std::initializer_list<std::pair<const char*, std::string_view>> texts) {
  for (const auto& [name, text] : texts) write_file_atomically(folder / name, std::as_bytes(std::span(text)));
}

/// A request of each API (which the first character says) with all that it may have.
void write_requests(const fs::path& folder) {
  write_texts(
      folder,
      {
          {"chat",
           R"(0{"messages":[{"role":"system","content":"s"},{"role":"developer","content":[{"type":"text","text":"d"}]},
{"role":"user","content":"u","name":"n"},{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"1",
"type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"ok"}],
"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],
"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,"stream":true,
"stream_options":{"include_usage":true},"redlite_progress":true,"stop":["a"],"seed":1,"temperature":0.5,"top_p":0.5,
"top_k":3,"min_p":0.1,"presence_penalty":1,"frequency_penalty":1,"repeat_penalty":1.1,"max_completion_tokens":5,
"logprobs":true,"top_logprobs":2,"n":1,"reasoning_effort":"low","chat_template_kwargs":{"k":1}})"},
          {"chat_json",
           R"(0{"messages":[{"role":"user","content":"u"}],"response_format":{"type":"json_schema",
"json_schema":{"name":"x","schema":{"type":"string"}}},"tool_choice":"none","ignore_eos":true,"max_tokens":1})"},
          {"completions",
           R"(1{"prompt":[[1,2]],"logprobs":2,"stop":"x","stream":true,"best_of":1,"echo":false})"},
          {"completions_text", R"(1{"prompt":"p","response_format":{"type":"json_object"}})"},
          {"responses",
           R"(2{"instructions":"i","input":[{"role":"developer","content":"d"},{"type":"message","role":"user",
"content":[{"type":"input_text","text":"a"}]},{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}]},
{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1",
"output":"x"}],"tools":[{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"web_search"}],
"tool_choice":{"type":"function","name":"f"},"text":{"format":{"type":"json_schema","name":"x","schema":{}}},
"reasoning":{"effort":"none"},"max_output_tokens":3,"include":["message.output_text.logprobs"],"top_logprobs":1,
"store":true,"stream":true,"metadata":{"k":"v"}})"},
          {"responses_next", R"(2{"input":"x","previous_response_id":"resp_id"})"},
          {"messages",
           R"(3{"max_tokens":5,"system":[{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a"},
{"role":"assistant","content":[{"type":"thinking","thinking":"r","signature":""},{"type":"text","text":"b"},
{"type":"tool_use","id":"1","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1",
"is_error":true,"content":[{"type":"text","text":"y"}]},{"type":"text","text":"c"}]}],"tools":[{"name":"f",
"input_schema":{"type":"object"}}],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"stop_sequences":["x"],
"thinking":{"type":"enabled","budget_tokens":1024},"stream":true})"},
      });
}

void write_heads(const fs::path& folder) {
  write_texts(
      folder,
      {
          {"post",
           "POST /v1/messages?beta=true HTTP/1.1\r\nHost: localhost:8080\r\nContent-Length: 5\r\nx-api-key: "
           "bc\r\n"
           "Origin: http://localhost:8080\r\nConnection: keep-alive\r\nExpect: 100-continue\r\n\r\n"},
          {"chunked",
           "POST / HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer a\r\n\r\n"},
          {"get",
           "GET /a HTTP/1.0\r\nConnection: close, x\r\nSec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n"
           "Content-Encoding: identity\r\n\r\n"},
      });
}

int run(const std::string& target, const fs::path& folder) {
  fs::create_directories(folder);
  if (target == "gguf_fuzz") {
    write_every_value(folder / "values.gguf");
    write_every_value(folder / "values_v2.gguf");
    make_version_2(folder / "values_v2.gguf");
    write_one_of_each_type(folder / "types.gguf");
    write_one_of_one_split(folder / "split.gguf");
    write_model(folder / "model.gguf", {});
  } else if (target == "model_fuzz") {
    write_models(folder);
  } else if (target == "trace_fuzz") {
    write_trace(folder / "small.trace", 8, 2, 4);
    write_trace(folder / "wide.trace", 300, 10, 20);
    write_trace(folder / "one.trace", 1, 1, 1);
  } else if (target == "state_fuzz") {
    write_states(folder);
  } else if (target == "template_fuzz") {
    write_templates(folder);
  } else if (target == "request_fuzz") {
    write_requests(folder);
  } else if (target == "http_fuzz") {
    write_heads(folder);
  } else if (target == "answer_fuzz") {
    write_answers(folder);
  } else if (target == "schema_fuzz") {
    write_schemas(folder);
  } else {
    fail("{}: no such fuzz target", target);
  }
  return 0;
}

}  // namespace
}  // namespace redlite

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: {} TARGET FOLDER\n", argv[0]);
    return 2;
  }
  try {
    return redlite::run(argv[1], argv[2]);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
