// Command testlog reads the output of go test -json and prints what a person
// wants of it: a line a package, the whole output of what failed, each skipped
// test with its reason, and at the end "N passed, N failed, N skipped".
//
// It guarantees that nothing that failed ends in status 0: a test, a package
// that does not build or panics, an input that is cut off or holds no
// test at all. With PLUGPULL_NO_SKIP set to 1 a skipped test is a failure too.
//
//	go test -json ./... | go run ./internal/testlog
package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	s, err := summarise(os.Stdin, out)
	if err != nil {
		fmt.Fprintln(out, "testlog:", err)
	}
	ok := s.print(out, os.Getenv("PLUGPULL_NO_SKIP") == "1") && err == nil
	if err := out.Flush(); err != nil || !ok {
		os.Exit(1)
	}
}
