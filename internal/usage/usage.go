// Package usage marks errors that are the caller's to mend: a wrong flag, file, server
// or password. It guarantees nothing but the mark, by which the command line chooses its exit code.
package usage

import (
	"errors"
	"fmt"
)

// Error is a mistake of the caller's. Its text names what is wrong and the way out.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf formats an Error; %w works as in fmt.Errorf.
func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }

// Wrap marks an error; nil stays nil.
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	return &Error{err}
}

// Is reports whether err is marked.
func Is(err error) bool {
	var u *Error
	return errors.As(err, &u)
}
