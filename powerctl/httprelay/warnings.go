package httprelay

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"plugpull/powerctl"
)

// Warnings reads the settings that the profile names. What the device cannot say is in
// the profile's notes, which are returned each time. Nothing is changed.
func (o *Outlet) Warnings(ctx context.Context) ([]powerctl.Warning, error) {
	var out []powerctl.Warning
	if strings.HasPrefix(strings.ToLower(o.c.URL), "http:") {
		out = append(out, powerctl.Warning{Text: "the connection is plain HTTP: anybody on the network can answer in the device's name" + o.exposed()})
	}
	err := o.with(ctx, "warnings", func(c *conversation) error {
		if err := o.verify(c); err != nil {
			return o.fail("warnings", "verify which device answers", err)
		}
		for _, k := range o.p.checks {
			w, err := k.look(c)
			if err != nil {
				return o.fail("warnings", "read "+k.name, err)
			}
			if w != nil {
				out = append(out, *w)
			}
		}
		return nil
	})
	for _, note := range o.p.Notes {
		out = append(out, powerctl.Warning{Text: note})
	}
	return out, err
}

// exposed says what else a listener on the network gets.
func (o *Outlet) exposed() string {
	if o.loginBy(Basic) || o.loginBy(Query) {
		return ", and read the password"
	}
	return ""
}

// look returns nil for a setting that is safe. An error is one of the connection.
func (k *check) look(c *conversation) (*powerctl.Warning, error) {
	a, err := c.get(k.get.fill(c.o.c.Outlet))
	var unread *unreadableError
	switch {
	case errors.As(err, &unread):
		return &powerctl.Warning{Text: fmt.Sprintf("%s could not be read: %v", k.name, err)}, nil
	case err != nil:
		return nil, err
	}
	found, whole := findAll(a.value, k.path.fill(c.o.c.Outlet))
	if !whole && len(found) == 0 && k.missingIsSafe {
		return nil, nil
	}
	for _, v := range found {
		got, ok := k.kind.text(v)
		whole = whole && ok
		if ok && !k.isSafe(got, c.o.c.Outlet) {
			return &powerctl.Warning{Text: fmt.Sprintf("%s (%s is %.60q)", k.words, k.name, c.o.scrub(line(got))), Switches: k.switches}, nil
		}
	}
	if !whole {
		return &powerctl.Warning{Text: k.name + " could not be read: the device's answer does not have it in the form that the profile wants"}, nil
	}
	return nil, nil
}
