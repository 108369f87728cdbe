package exec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"

	"plugpull/powerctl"
)

// Identify runs the identify command; what it prints must be the pin, where there is one.
// Without the command the device is told by a digest of the off command, so that the same
// command means the same outlet.
func (o *Outlet) Identify(ctx context.Context) (powerctl.Identity, error) {
	sum := sha256.Sum256([]byte(strings.Join(o.c.Off, "\x00")))
	// Short on purpose: it tells outlets apart and gives no argument away.
	id := powerctl.Identity{Driver: "exec", Part: "off command " + hex.EncodeToString(sum[:4]), Name: o.c.Name}
	if len(o.c.Identify) == 0 {
		id.Device, id.Part = id.Part, ""
		return id, nil
	}
	line, err := o.ask(ctx, "identify")
	if err == nil {
		err = o.compare("identify", line)
	}
	if err != nil {
		return powerctl.Identity{}, err
	}
	id.Device = line
	return id, nil
}

// Pins returns what the identify command prints now, by the key of a bench file; nothing
// where there is none.
func (o *Outlet) Pins(ctx context.Context) (map[string]string, error) {
	if len(o.c.Identify) == 0 {
		return nil, nil
	}
	line, err := o.ask(ctx, "pins")
	if err != nil {
		return nil, err
	}
	return map[string]string{"identity": line}, nil
}

// verify makes sure that the pinned device answers; nothing is run without a pin.
func (o *Outlet) verify(ctx context.Context, op string) error {
	if o.c.Pin == "" {
		return nil
	}
	line, err := o.ask(ctx, op)
	if err != nil {
		return err
	}
	return o.compare(op, line)
}

func (o *Outlet) compare(op, line string) error {
	if o.c.Pin == "" || line == o.c.Pin {
		return nil
	}
	return &powerctl.OpError{
		Op: op, Outlet: o.c.Name, Step: "verify which device answers",
		Err: &powerctl.IdentityError{What: "identity", Want: o.c.Pin, Got: line},
	}
}

// ask runs the identify command.
func (o *Outlet) ask(ctx context.Context, op string) (string, error) {
	out, err := o.run(ctx, op, o.c.Identify)
	if err != nil {
		return "", err
	}
	line := strings.TrimSpace(out.text())
	if out.cut || !isLine(line) {
		return "", &powerctl.OpError{
			Op: op, Outlet: o.c.Name, Step: "read what " + filepath.Base(o.c.Identify[0]) + " printed",
			Err: fmt.Errorf("got %q, want one line", line),
		}
	}
	return line, nil
}

func isLine(s string) bool {
	return s != "" && s == strings.TrimSpace(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Plan implements powerctl.Planner. Arguments may hold secrets, and are counted only.
func (o *Outlet) Plan(on bool) []string {
	var lines []string
	if o.c.Pin != "" {
		lines = append(lines, fmt.Sprintf("%s; it must print %q", runs(o.c.Identify), o.c.Pin))
	}
	argv := o.c.Off
	if on {
		argv = o.c.On
	}
	return append(lines, runs(argv))
}

func runs(argv []string) string {
	switch n := len(argv) - 1; n {
	case 0:
		return fmt.Sprintf("run %q without arguments", argv[0])
	case 1:
		return fmt.Sprintf("run %q with 1 argument", argv[0])
	default:
		return fmt.Sprintf("run %q with %d arguments", argv[0], n)
	}
}
