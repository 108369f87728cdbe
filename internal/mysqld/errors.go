package mysqld

import (
	"fmt"
	"strings"
	"syscall"
)

// Cause says who ended a server.
type Cause uint8

// The causes.
const (
	// ByItself: it exited, or died of a signal that its own doing raises
	// (SIGABRT after a failed assertion, SIGSEGV). A Stop ends in exit code 0.
	ByItself Cause = iota + 1
	// ByUs: SIGKILL from Kill or Close.
	ByUs
	// ByOthers: SIGKILL that this package did not send: perhaps the kernel's
	// out-of-memory killer. It says nothing about the database.
	ByOthers
)

// End says how a server's process ended.
type End struct {
	Cause  Cause
	Code   int            // exit code; -1 after a signal
	Signal syscall.Signal // zero after an exit
}

// String returns the end in words.
func (e End) String() string {
	switch {
	case e.Cause == ByUs:
		return "killed by plugpull"
	case e.Cause == ByOthers:
		return "killed by a SIGKILL that plugpull did not send (the out-of-memory killer?)"
	case e.Signal != 0:
		return fmt.Sprintf("died of signal %d (%v)", int(e.Signal), e.Signal)
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

// StartError says that a server did not come as far as its greeting.
type StartError struct {
	// Exited: its process ended, as End says. False: it never came to be
	// (PortTaken or Err), or it still ran when the wait ended (Err).
	Exited bool
	End    End
	// PortTaken: another socket listens on the address. Found by binding it; when it
	// is found before the start, the server was not started and the data not touched.
	PortTaken bool
	// Refused names the setting that the server does not take, found by running it
	// with that setting alone on no data: see Install.Refuses for what that misses.
	Refused string
	Log     string // the end of the server's own log since this start
	Err     error  // what ended the wait or kept the process from starting; may be nil
}

// Error returns what is known and the end of the log.
func (e *StartError) Error() string {
	var b strings.Builder
	b.WriteString("the server did not start: ")
	switch {
	case e.PortTaken:
		b.WriteString("its port is taken")
	case e.Refused != "":
		fmt.Fprintf(&b, "it does not take the setting %s", e.Refused)
	case e.Exited:
		b.WriteString(e.End.String())
	case e.Err != nil:
		b.WriteString(e.Err.Error())
	}
	if e.Log != "" {
		b.WriteString("; the end of its log:\n" + e.Log)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *StartError) Unwrap() error { return e.Err }
