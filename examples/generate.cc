// Asks a model one thing and prints the answer as it comes. usage: generate MODEL QUESTION
#include <redlite/redlite.h>

#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: generate MODEL QUESTION\n";
    return 2;
  }
  try {
    const redlite::Model model(argv[1]);
    redlite::Session session(model, {.context = 2048});

    const auto prompt = model.chat_prompt({{"user", argv[2]}});
    auto answer = session.generate(prompt, {.max_tokens = 100, .temperature = 0.7f, .seed = 1});
    while (const auto piece = answer.next()) std::cout << piece->text << std::flush;

    const redlite::CacheStatistics cache = session.cache_statistics();
    std::cout << "\n(" << prompt.size() << " tokens asked, " << session.position() - prompt.size()
              << " answered, " << cache.hits << " experts found in memory, " << cache.misses << " read)\n";
  } catch (const redlite::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
