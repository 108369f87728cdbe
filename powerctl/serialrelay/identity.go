package serialrelay

import (
	"context"
	"fmt"
	"strings"

	"plugpull/powerctl"
)

// whoIsIt names the board behind the open port. A Numato's own id comes first;
// it leaves the factory as 00000000 on every board, so that the USB device is
// named in every case.
func (b *Board) whoIsIt(ctx context.Context) (string, error) {
	dev, err := b.port.Device()
	if err != nil {
		return "", err
	}
	id, err := portID(b.sysfs, b.c.Path, dev)
	if err != nil || b.c.Protocol != Numato {
		return id, err
	}
	own, err := b.numatoSays(ctx, "id get")
	if err != nil {
		return "", err
	}
	version, err := b.numatoSays(ctx, "ver")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("id %s version %s, %s", own, version, id), nil
}

// numatoSays asks a question that has a word for an answer.
func (b *Board) numatoSays(ctx context.Context, request string) (string, error) {
	var word string
	got, r, err := b.exchange(ctx, []byte(request+"\r"), func(got []byte) (r reading) {
		word, r = numatoAnswer(request, 1, got)
		return r
	}, 0)
	if err != nil {
		return "", fmt.Errorf("%s: %w", request, err)
	}
	if r != accepted || !isWord(word) {
		return "", fmt.Errorf("%s: %w: %q", request, ErrNotAnAnswer, printable(got))
	}
	return word, nil
}

func isWord(s string) bool {
	return s != "" && len(s) <= 32 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// probe finds out how an LCUS board answers. It believes in silence only when
// the board was silent twice.
func (b *Board) probe(ctx context.Context) error {
	_, text := lcus{b.c.Channels, Text}.query(1)
	_, raw := lcus{b.c.Channels, Bytes}.query(1)
	either := func(got []byte) reading {
		t, r := text(got), raw(got)
		if t == incomplete || r == incomplete {
			return incomplete
		}
		return max(t, r) // nonsense is the least of the others
	}
	found := None
	for i := 0; i < 2 && found == None; i++ {
		got, r, err := b.exchange(ctx, []byte{0xff}, either, b.c.Timeout/4)
		switch {
		case err != nil:
			return fmt.Errorf("probe the read-back: %w", err)
		case len(got) == 0:
			continue
		case r != energised && r != released:
			return fmt.Errorf("probe the read-back: %w: %q", ErrNotAnAnswer, printable(got))
		}
		found = Text
		if text(got) == nonsense {
			found = Bytes
		}
	}
	b.c.Readback = found
	b.wire = newWire(b.c)
	return nil
}

// Pins returns which board is behind the port now, by the key of a bench file. A board that
// was swapped since Open is a *powerctl.IdentityError, which says both.
func (o *Outlet) Pins(ctx context.Context) (map[string]string, error) {
	var id string
	err := o.b.with(ctx, func(ctx context.Context) (err error) {
		id, err = o.b.whoIsIt(ctx)
		return err
	})
	if err != nil {
		return nil, o.fail("pins", "ask the board who it is", err)
	}
	return map[string]string{"board": id}, nil
}

// Identify says which board and relay this is, and which contact the power goes through.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	err := o.b.with(ctx, func(ctx context.Context) error {
		id, err := o.b.whoIsIt(ctx)
		if err != nil {
			return err
		}
		return o.b.pin(id)
	})
	if err != nil {
		return powerctl.Identity{}, o.fail("identify", "ask the board who it is", err)
	}
	return powerctl.Identity{
		Driver: "serialrelay",
		Device: fmt.Sprintf("%s board, %s, channel %d, %s", o.b.c.Protocol, o.b.id, o.c.Channel, o.c.Contact),
		Name:   o.c.Name,
	}, nil
}

// printable returns text as it is, and other bytes in hex, so that evidence
// written as JSON loses none. What is longer than powerctl.MaxRaw is cut.
func printable(b []byte) string {
	for _, c := range b {
		if (c < ' ' || c > '~') && c != '\r' && c != '\n' && c != '\t' {
			return fmt.Sprintf("% x", b[:min(len(b), powerctl.MaxRaw/3)])
		}
	}
	return string(b[:min(len(b), powerctl.MaxRaw)])
}
