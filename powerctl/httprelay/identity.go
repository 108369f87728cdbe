package httprelay

import (
	"errors"
	"strings"

	"plugpull/powerctl"
)

// field is one thing that a device says of itself.
type field struct {
	key   string // in Pins
	what  string // for people
	rule  *reading
	known *string // what it must be; empty until it was told
}

// fields are those that the profile can read.
func (o *Outlet) fields() []field {
	var list []field
	if o.p.serial != nil {
		list = append(list, field{"serial", "serial", o.p.serial, &o.known.Serial})
	}
	if o.p.outletName != nil {
		list = append(list, field{"outlet_name", "outlet name", o.p.outletName, &o.known.OutletName})
	}
	return list
}

// verify compares what the device says with what it must say, and remembers what it says
// for the first time.
func (o *Outlet) verify(c *conversation) error {
	var told []string
	fields := o.fields()
	for _, f := range fields {
		got, err := o.tell(c, f)
		var unread *unreadableError
		if err != nil && (*f.known != "" || !errors.As(err, &unread)) {
			return err
		}
		if *f.known != "" && got != *f.known {
			return &powerctl.IdentityError{What: f.what, Want: *f.known, Got: got}
		}
		told = append(told, got)
	}
	for i, f := range fields {
		*f.known = told[i]
	}
	return nil
}

// tell asks for one field; empty where the answer has none.
func (o *Outlet) tell(c *conversation, f field) (string, error) {
	a, err := c.get(f.rule.get.fill(o.c.Outlet))
	if err != nil {
		return "", err
	}
	text, _ := f.rule.text(a.value, o.c.Outlet)
	return strings.TrimSpace(o.scrub(line(text))), nil
}

// line keeps a text from disturbing lines of text.
func line(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text)
}
