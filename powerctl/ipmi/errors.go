package ipmi

import (
	"errors"
	"fmt"
)

// ErrAuthentication: the BMC and the configured password or BMC key do not
// agree. Either is wrong, or something else answers.
var ErrAuthentication = errors.New("the BMC's proof does not fit the configured password and BMC key")

// errProtocol: the reply is authentic or in place, but says nothing usable.
var errProtocol = errors.New("the reply makes no sense")

// StatusError is the BMC's refusal to open a session.
type StatusError struct{ Code byte }

func (e *StatusError) Error() string {
	if text := statusTexts[e.Code]; text != "" {
		return fmt.Sprintf("RMCP+ status %#02x: %s", e.Code, text)
	}
	return fmt.Sprintf("RMCP+ status %#02x", e.Code)
}

// IPMI 2.0, table 13-15; those that a user can do something about.
var statusTexts = map[byte]string{
	0x01: "no free session", 0x04: "authentication algorithm not supported", 0x05: "integrity algorithm not supported",
	0x09: "role not allowed", 0x0a: "privilege level not allowed", 0x0b: "no free session at this privilege level",
	0x0c: "name too long", 0x0d: "no such user", 0x0f: "integrity check failed",
	0x10: "encryption algorithm not supported", 0x11: "cipher suite not supported",
}

// CompletionError is the BMC's answer to a command that it did not carry out,
// or says so.
type CompletionError struct {
	Command string
	Code    byte
}

func (e *CompletionError) Error() string {
	if text := completionTexts[e.Code]; text != "" {
		return fmt.Sprintf("%s: completion code %#02x: %s", e.Command, e.Code, text)
	}
	return fmt.Sprintf("%s: completion code %#02x", e.Command, e.Code)
}

// IPMI 2.0, table 5-2; those that are seen in practice.
var completionTexts = map[byte]string{
	codeBusy: "busy", notSupported: "command not supported", codeTimeout: "timed out", 0xcb: "not present", 0xcc: "invalid data",
	0xce: "no response possible", 0xd2: "the BMC is starting", 0xd3: "destination unavailable", 0xd4: "insufficient privilege",
	0xd5: "not possible in the present state", 0xff: "unspecified error",
}

const (
	codeBusy     = 0xc0
	notSupported = 0xc1
	codeTimeout  = 0xc3
)
