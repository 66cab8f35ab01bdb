"""Red Lite: run sparse Mixture-of-Experts models that are larger than the machine's memory.

    import redlite
    model = redlite.Model("model.gguf")
    session = redlite.Session(model, cache_mib=4096)
    for text in session.generate("Who are you?", max_tokens=100):
        print(text, end="", flush=True)
"""

from ._redlite import Answer, CacheStatistics, Error, Model, Session, TensorInfo, __version__

__all__ = ["Answer", "CacheStatistics", "Error", "Model", "Session", "TensorInfo", "__version__"]
