// redlite._redlite: include/redlite/redlite.h for Python. Types and docstrings stand in redlite/__init__.pyi.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <redlite/redlite.h>

#include <filesystem>
#include <memory>
#include <variant>

namespace py = pybind11;
using namespace redlite;

namespace {

template <typename T>
py::array_t<T> array(std::vector<py::ssize_t> shape, std::span<const T> values) {
  py::array_t<T> out(std::move(shape));
  std::copy(values.begin(), values.end(), out.mutable_data());
  return out;
}

py::tuple numpy_shape(const TensorInfo& tensor) {
  py::tuple shape(tensor.shape.size());
  for (size_t i = 0; i < tensor.shape.size(); ++i) shape[i] = tensor.shape[tensor.shape.size() - 1 - i];
  return shape;
}

/// Text of any bytes.
py::str text(const std::string& bytes) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<py::ssize_t>(bytes.size()), "replace"));
}

/// As os.fsdecode: a file's name may have bytes that are no UTF-8.
py::str path_text(const std::string& path) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<py::ssize_t>(path.size())));
}

std::string to_json(const py::object& object) {
  return py::module_::import("json").attr("dumps")(object).cast<std::string>();
}

py::array_t<float> dequantize(const Model& model, const std::string& name) {
  std::vector<float> values;
  {
    const py::gil_scoped_release unlocked;
    values = model.dequantize(name);
  }
  for (const TensorInfo& tensor : model.tensors()) {
    if (tensor.name != name) continue;
    return array<float>({tensor.shape.rbegin(), tensor.shape.rend()}, values);
  }
  return {};
}

/// An answer that iterates over text and remembers its tokens.
struct PythonAnswer {
  Session::Answer answer;
  std::vector<Token> tokens;

  std::string next() {
    std::optional<Piece> piece;
    do {
      {
        const py::gil_scoped_release unlocked;
        piece = answer.next();
      }
      if (!piece) throw py::stop_iteration();
      if (piece->token >= 0) tokens.push_back(piece->token);
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    } while (piece->text.empty());
    return piece->text;
  }
};

PythonAnswer generate(Session& session, const Model& model,
                      const std::variant<std::string, std::vector<Token>>& prompt,
                      const GenerateOptions& options) {
  const std::vector<Token> tokens = std::holds_alternative<std::string>(prompt)
                                        ? model.tokenize(std::get<std::string>(prompt), true)
                                        : std::get<std::vector<Token>>(prompt);
  const py::gil_scoped_release unlocked;
  return {session.generate(tokens, options), {}};
}

py::array_t<float> logits(Session& session, const Model& model, const std::vector<Token>& tokens, bool all) {
  std::span<const float> values;
  {
    const py::gil_scoped_release unlocked;
    values = session.forward(tokens, all);
  }
  const py::ssize_t n_vocab = model.info().n_vocab;
  if (!all) return array<float>({n_vocab}, values);
  return array<float>({static_cast<py::ssize_t>(tokens.size()), n_vocab}, values);
}

py::array_t<int32_t> take_routing(Session& session) {
  const RoutingTrace trace = session.take_routing();
  const py::ssize_t row = py::ssize_t{trace.n_layers} * trace.n_experts_used;
  return array<int32_t>(
      {static_cast<py::ssize_t>(trace.experts.size()) / row, trace.n_layers, trace.n_experts_used},
      trace.experts);
}

/// A session with the model it needs, which Python might let go of earlier.
struct PythonSession {
  std::shared_ptr<Model> model;
  Session session;
};

}  // namespace

PYBIND11_MODULE(_redlite, m) {
  static const py::handle error = py::exception<Error>(m, "Error", PyExc_RuntimeError).release();
  // Not pybind11's own translation, which fails where a message quotes bytes that are no UTF-8.
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& e) {
      PyErr_SetObject(error.ptr(), text(e.what()).ptr());
    }
  });
  m.attr("__version__") = std::string(version());

  py::class_<TensorInfo>(m, "TensorInfo")
      .def_readonly("name", &TensorInfo::name)
      .def_readonly("type", &TensorInfo::type)
      .def_property_readonly("shape", &numpy_shape)
      .def_readonly("bytes", &TensorInfo::bytes)
      .def("__repr__", [](const TensorInfo& t) {
        return py::str("<TensorInfo {} {} {}>").format(t.name, t.type, numpy_shape(t));
      });

  py::class_<CacheStatistics>(m, "CacheStatistics")
      .def_readonly("hits", &CacheStatistics::hits)
      .def_readonly("misses", &CacheStatistics::misses)
      .def_readonly("late", &CacheStatistics::late)
      .def_readonly("prefetched", &CacheStatistics::prefetched)
      .def_readonly("bytes_read", &CacheStatistics::bytes_read)
      .def_readonly("stall_seconds", &CacheStatistics::stall_seconds);

  const auto info = [](auto member) { return [member](const Model& model) { return model.info().*member; }; };
  py::class_<Model, std::shared_ptr<Model>>(m, "Model")
      .def(py::init([](const std::filesystem::path& path) { return std::make_shared<Model>(path.string()); }),
           py::arg("path"))
      .def_property_readonly("path", [](const Model& model) { return path_text(model.info().path); })
      .def_property_readonly("name", info(&ModelInfo::name))
      .def_property_readonly("architecture", info(&ModelInfo::architecture))
      .def_property_readonly("n_layers", info(&ModelInfo::n_layers))
      .def_property_readonly("n_embd", info(&ModelInfo::n_embd))
      .def_property_readonly("n_vocab", info(&ModelInfo::n_vocab))
      .def_property_readonly("n_experts", info(&ModelInfo::n_experts))
      .def_property_readonly("n_experts_used", info(&ModelInfo::n_experts_used))
      .def_property_readonly("context", info(&ModelInfo::context))
      .def_property_readonly("dense_bytes", info(&ModelInfo::dense_bytes))
      .def_property_readonly("expert_bytes", info(&ModelInfo::expert_bytes))
      .def("tokenize", &Model::tokenize, py::arg("text"), py::arg("special") = false)
      .def(
          "detokenize",
          [](const Model& model, const std::vector<Token>& tokens, bool special) {
            return text(model.detokenize(tokens, special));
          },
          py::arg("tokens"), py::arg("special") = false)
      .def("is_end", &Model::is_end, py::arg("token"))
      .def(
          "chat_prompt",
          [](const Model& model, const py::object& messages, const py::object& tools) {
            return model.chat_prompt_json(to_json(messages), tools.is_none() ? "" : to_json(tools));
          },
          py::arg("messages"), py::arg("tools") = py::none())
      .def("tensors", &Model::tensors)
      .def("dequantize", &dequantize, py::arg("tensor"));

  py::class_<PythonAnswer>(m, "Answer")
      .def_readonly("tokens", &PythonAnswer::tokens)
      .def_property_readonly("finish_reason",
                             [](const PythonAnswer& a) { return std::string(a.answer.finish_reason()); })
      .def("__iter__", [](PythonAnswer& a) -> PythonAnswer& { return a; })
      .def("__next__", &PythonAnswer::next);

  py::class_<PythonSession>(m, "Session")
      .def(py::init([](std::shared_ptr<Model> model, const std::string& backend,
                       std::optional<uint64_t> cache_mib, int context, int threads, bool prefetch,
                       bool half_kv) {
             const py::gil_scoped_release unlocked;
             Session session(*model, {.backend = backend,
                                      .cache_mib = cache_mib,
                                      .context = context,
                                      .threads = threads,
                                      .prefetch = prefetch,
                                      .half_kv = half_kv});
             return std::make_unique<PythonSession>(PythonSession{std::move(model), std::move(session)});
           }),
           py::arg("model"), py::kw_only(), py::arg("backend") = "cpu", py::arg("cache_mib") = py::none(),
           py::arg("context") = 4096, py::arg("threads") = 0, py::arg("prefetch") = true,
           py::arg("half_kv") = true)
      .def(
          "logits",
          [](PythonSession& s, const std::vector<Token>& tokens, bool all) {
            return logits(s.session, *s.model, tokens, all);
          },
          py::arg("tokens"), py::arg("all") = false)
      .def(
          "generate",
          [](PythonSession& s, const std::variant<std::string, std::vector<Token>>& prompt, int max_tokens,
             float temperature, int top_k, float top_p, float min_p, float repeat_penalty,
             float presence_penalty, float frequency_penalty, uint32_t seed, std::vector<std::string> stop,
             bool ignore_end) {
            return generate(s.session, *s.model, prompt,
                            {.max_tokens = max_tokens,
                             .temperature = temperature,
                             .top_k = top_k,
                             .top_p = top_p,
                             .min_p = min_p,
                             .repeat_penalty = repeat_penalty,
                             .presence_penalty = presence_penalty,
                             .frequency_penalty = frequency_penalty,
                             .seed = seed,
                             .stop = std::move(stop),
                             .ignore_end = ignore_end});
          },
          py::keep_alive<0, 1>(), py::arg("prompt"), py::kw_only(), py::arg("max_tokens") = 256,
          py::arg("temperature") = 0.0f, py::arg("top_k") = 40, py::arg("top_p") = 0.95f,
          py::arg("min_p") = 0.05f, py::arg("repeat_penalty") = 1.0f, py::arg("presence_penalty") = 0.0f,
          py::arg("frequency_penalty") = 0.0f, py::arg("seed") = 0,
          py::arg("stop") = std::vector<std::string>{}, py::arg("ignore_end") = false)
      .def_property_readonly("position", [](const PythonSession& s) { return s.session.position(); })
      .def_property_readonly("capacity", [](const PythonSession& s) { return s.session.capacity(); })
      .def("reset", [](PythonSession& s) { s.session.reset(); })
      .def("cache_statistics", [](const PythonSession& s) { return s.session.cache_statistics(); })
      .def(
          "record_routing", [](PythonSession& s, bool on) { s.session.record_routing(on); },
          py::arg("on") = true)
      .def("take_routing", [](PythonSession& s) { return take_routing(s.session); });
}
