// What redlite_test_headers needs to have a source: its precompiled headers serve all tests.
