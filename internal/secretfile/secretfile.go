// Package secretfile reads a password, a key or a community from a file of its own.
//
// It guarantees that a file which anybody but its owner can reach is refused, and that no error
// repeats what the file holds.
package secretfile

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// Most bounds what Read reads, in bytes.
const Most = 4096

// Read returns the contents of a file without one newline at its
// end. It refuses a file that the group or others may read, write or execute.
func Read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("secret's file: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("secret's file: %w", err)
	}
	if !st.Mode().IsRegular() {
		return "", fmt.Errorf("secret's file %s is not a regular file", path)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("secret's file %s has mode %04o: others can reach it; chmod 600 it", path, st.Mode().Perm())
	}
	b, err := io.ReadAll(io.LimitReader(f, Most+1))
	if err != nil {
		return "", fmt.Errorf("secret's file: %w", err)
	}
	if len(b) > Most {
		return "", fmt.Errorf("secret's file %s is longer than %d bytes", path, Most)
	}
	s := strings.TrimSuffix(string(b), "\n")
	return strings.TrimSuffix(s, "\r"), nil
}
