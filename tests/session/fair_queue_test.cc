#include "session/fair_queue.h"

#include <gtest/gtest.h>

namespace redlite::session {
namespace {

FairQueue::Item item(const std::string& client, int number) {
  Request request;
  request.client = client;
  request.prompt = {number};
  return std::make_shared<Answer::Job>(std::move(request), std::make_shared<WakeUp>());
}

std::string drain(FairQueue& queue) {
  std::string order;
  while (const FairQueue::Item next = queue.pop())
    order += next->request.client + std::to_string(next->request.prompt[0]) + ' ';
  return order;
}

TEST(FairQueue, ClientsTakeTurns) {
  FairQueue queue;
  for (int i = 1; i <= 3; ++i) queue.push(item("a", i));
  queue.push(item("b", 1));
  queue.push(item("c", 1));
  queue.push(item("b", 2));
  EXPECT_EQ(queue.size(), 6u);
  EXPECT_EQ(drain(queue), "a1 b1 c1 a2 b2 a3 ");
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_FALSE(queue.has("a"));
}

TEST(FairQueue, TheCancelledLeave) {
  FairQueue queue;
  queue.push(item("a", 1));
  const FairQueue::Item second = item("a", 2), only = item("b", 1);
  queue.push(second);
  queue.push(only);
  queue.push(item("c", 1));
  Answer(second).cancel();
  Answer(only).cancel();
  EXPECT_EQ(queue.take_cancelled(), (std::deque<FairQueue::Item>{second, only}));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(drain(queue), "a1 c1 ");
}

}  // namespace
}  // namespace redlite::session
