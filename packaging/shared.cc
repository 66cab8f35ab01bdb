// The shared library has its code from src/library; CMake wants a source of its own.
#include <redlite/redlite.h>
