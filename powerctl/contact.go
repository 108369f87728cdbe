package powerctl

// Contact says which contact of a relay the power goes through. An unpowered board
// releases its relays: behind a normally closed contact that is power on.
type Contact string

// The contacts.
const (
	NormallyOpen   Contact = "normally_open"   // power is on while the relay is energised
	NormallyClosed Contact = "normally_closed" // power is off while the relay is energised
)

// Valid reports whether c is one of the contacts.
func (c Contact) Valid() bool { return c == NormallyOpen || c == NormallyClosed }

// Energised says what the relay must do for the power to be on or off.
func (c Contact) Energised(on bool) bool { return on == (c == NormallyOpen) }

// State is the power behind a relay that is known to be energised, or released.
func (c Contact) State(energised bool) State {
	if c.Energised(true) == energised {
		return On
	}
	return Off
}
