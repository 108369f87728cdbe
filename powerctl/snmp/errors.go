package snmp

import (
	"errors"
	"fmt"

	"github.com/gosnmp/gosnmp"

	"plugpull/powerctl"
)

// StatusError is an error that the device itself answered with.
type StatusError struct {
	Status uint8  // RFC 3416, section 3: 5 is genErr
	OID    string // the variable that it is about, "" where the device names none
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("the device answered %v (%d)", gosnmp.SNMPError(e.Status), e.Status)
	if e.OID != "" {
		text += " for " + e.OID
	}
	return text
}

// ErrBadReply: what came back is no answer to the request that was sent.
var ErrBadReply = errors.New("the reply does not answer the request")

// errSecondWrite keeps a SET from leaving twice, whatever the library does.
var errSecondWrite = errors.New("a command is never sent twice")

// libraryError bounds the text of an error from the SNMP library, which after
// a recovered panic holds a stack trace. The error stays reachable.
type libraryError struct{ err error }

func (e *libraryError) Error() string {
	const most = 200
	text := e.err.Error()
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

func (e *libraryError) Unwrap() error { return e.err }

// opError is an error of a step that came before any command.
func (o *Outlet) opError(op, step string, err error) error {
	return &powerctl.OpError{Op: op, Outlet: o.label(), Step: step, Err: err}
}

// notSent is an error of an Off or On that certainly sent no command.
func (o *Outlet) notSent(op, step string, err error) error {
	return o.opError(op, step, fmt.Errorf("%w: %w", powerctl.ErrNotSent, err))
}
