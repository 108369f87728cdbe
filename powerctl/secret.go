package powerctl

import (
	"fmt"
	"log/slog"
)

// Secret is a password or a key. It prints as "(secret)" under every verb of
// fmt, in JSON and in slog.
type Secret struct {
	// A pointer: fmt calls no method on a value that it finds in an unexported
	// field, and prints a pointer there as an address.
	text *string
}

const hidden = "(secret)"

// NewSecret keeps the text.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Format implements fmt.Formatter.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hidden)) }

// MarshalText implements encoding.TextMarshaler.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue implements slog.LogValuer.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// Reveal returns the text, for the driver that sends it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}
