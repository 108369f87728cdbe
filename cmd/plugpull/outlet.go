package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"plugpull/internal/secretfile"
	"plugpull/internal/strictyaml"
	"plugpull/internal/usage"
	"plugpull/powerctl"
	"plugpull/powerctl/bridge/labgrid"
	"plugpull/powerctl/bridge/nut"
	"plugpull/powerctl/bridge/pdudaemon"
	"plugpull/powerctl/bridge/powerman"
	"plugpull/powerctl/exec"
	"plugpull/powerctl/hidrelay"
	"plugpull/powerctl/httprelay"
	"plugpull/powerctl/ipmi"
	"plugpull/powerctl/manual"
	"plugpull/powerctl/quarch"
	"plugpull/powerctl/redfish"
	"plugpull/powerctl/serialrelay"
	"plugpull/powerctl/snmp"
	"plugpull/scenarios"
)

// builder makes outlets from a bench file. close gives back what they hold open.
type builder struct {
	a      *app
	ctx    context.Context
	close  []func() error
	boards map[serialrelay.Config]*serialrelay.Board // one for all relays of a port
	// dry: contact nothing, and do without secrets that are not there.
	dry bool
}

// outlets is a built outlet and what it holds open.
type outlets struct {
	powerctl.Outlet
	close []func() error
}

// Close gives back what the drivers hold open. It switches nothing.
func (o *outlets) Close() error {
	var errs []error
	for _, f := range o.close {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// outlet makes the outlet of a bench file, and says everything that its drivers find wrong with it, by
// line. It contacts nothing but the serial ports.
func (a *app) outlet(ctx context.Context, b *scenarios.Bench, dry bool) (*outlets, error) {
	bu := &builder{a: a, ctx: ctx, boards: map[serialrelay.Config]*serialrelay.Board{}, dry: dry}
	bad := &strictyaml.FileError{File: b.File}
	o, err := bu.make(&b.Outlet, bad, "outlet")
	all := &outlets{Outlet: o, close: bu.close}
	if err == nil && len(bad.Problems) == 0 {
		suits(b, o, bad)
	}
	if len(bad.Problems) > 0 {
		err = errors.Join(err, bad)
	}
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return all, nil
}

// driverProblems adds what the drivers find wrong with the outlets of a file of which something is wrong already.
func driverProblems(b *scenarios.Bench, bad *scenarios.FileError) {
	bu := &builder{a: &app{}, ctx: context.Background(), boards: map[serialrelay.Config]*serialrelay.Board{}, dry: true}
	outlets := map[string]*scenarios.Outlet{"outlet": &b.Outlet}
	for i := range b.Outlet.Feeds {
		outlets[fmt.Sprintf("outlet.feeds[%d]", i+1)] = &b.Outlet.Feeds[i]
	}
	for path, o := range outlets {
		known := slices.ContainsFunc(bad.Problems, func(p strictyaml.Problem) bool {
			return p.Key == path || strings.HasPrefix(p.Key, path+".")
		})
		if known || o.Driver == scenarios.DriverGroup || o.Driver == "" {
			continue
		}
		_, _ = bu.make(o, bad, path) // its problems are in bad
	}
	slices.SortStableFunc(bad.Problems, func(a, b strictyaml.Problem) int { return a.Line - b.Line })
}

// suits compares what the file says of the outlet with what the driver can do.
func suits(b *scenarios.Bench, o powerctl.Outlet, bad *strictyaml.FileError) {
	c := o.Capabilities()
	problem := func(key, format string, args ...any) {
		bad.Problems = append(bad.Problems, strictyaml.Problem{Line: b.Outlet.Line, Key: key, Text: fmt.Sprintf(format, args...)})
	}
	if b.Outlet.Class != "" && b.Outlet.Class != c.Class {
		problem("outlet.class", "%s, but what this outlet cuts is %s: leave it out, or correct it", b.Outlet.Class, c.Class)
	}
	if b.Attest == scenarios.AttestMains && c.Class != powerctl.Mains {
		problem("attest", "mains contradicts the outlet's class %s, want drive or none", c.Class)
	}
	if b.Outlet.Leave == scenarios.LeaveFound && !c.ReadBack {
		problem("outlet.leave", "as_found for an outlet whose state cannot be read, want on or off")
	}
}

// make builds one outlet. Problems of the file go to bad, others are returned.
func (b *builder) make(o *scenarios.Outlet, bad *strictyaml.FileError, path string) (powerctl.Outlet, error) {
	problem := func(err error) {
		for _, e := range flatten(err) {
			bad.Problems = append(bad.Problems, strictyaml.Problem{Line: o.Line, Key: path, Text: e.Error()})
		}
	}
	if o.Driver == scenarios.DriverGroup {
		return b.group(o, bad, path, problem)
	}
	secret := func(key string) powerctl.Secret {
		s, err := b.secret(o, key)
		if err != nil {
			problem(err)
		}
		return s
	}
	out, err := b.driver(o, secret)
	var op *powerctl.OpError
	if errors.As(err, &op) { // the device, not the file
		return nil, err
	}
	if err != nil {
		problem(err)
	}
	return out, nil
}

func (b *builder) group(o *scenarios.Outlet, bad *strictyaml.FileError, path string, problem func(error)) (powerctl.Outlet, error) {
	var feeds []powerctl.Feed
	var errs []error
	before := len(bad.Problems)
	for i := range o.Feeds {
		f, err := b.make(&o.Feeds[i], bad, fmt.Sprintf("%s.feeds[%d]", path, i+1))
		errs = append(errs, err)
		feeds = append(feeds, powerctl.Feed{Name: o.Feeds[i].Name, Outlet: f})
	}
	if err := errors.Join(errs...); err != nil || len(bad.Problems) > before {
		return nil, err
	}
	g, err := powerctl.NewGroup(o.Name, feeds)
	if err != nil {
		problem(err)
		return nil, nil
	}
	return g, nil
}

// flatten takes joined errors apart, so that each problem has a line.
func flatten(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	if wrapped := errors.Unwrap(err); wrapped != nil {
		if _, ok := wrapped.(interface{ Unwrap() []error }); ok {
			return flatten(wrapped)
		}
	}
	return []error{err}
}

// secret reads what KEY_file or KEY_env names; neither is the empty secret.
func (b *builder) secret(o *scenarios.Outlet, key string) (powerctl.Secret, error) {
	if path := o.Settings[key+"_file"]; path != "" {
		text, err := secretfile.Read(path)
		if err != nil && b.dry && errors.Is(err, os.ErrNotExist) {
			return powerctl.NewSecret("dry-run-secret"), nil
		}
		return powerctl.NewSecret(text), err
	}
	name := o.Settings[key+"_env"]
	if name == "" {
		return powerctl.Secret{}, nil
	}
	text, ok := os.LookupEnv(name)
	if !ok && b.dry {
		return powerctl.NewSecret("dry-run-secret"), nil
	}
	if !ok {
		return powerctl.Secret{}, fmt.Errorf("%s_env: the environment has no variable of the name that stands there: set it", key) // it may be the secret itself
	}
	return powerctl.NewSecret(text), nil
}

// driver builds the outlet of one device. Errors are of its configuration, but for an
// *powerctl.OpError.
func (b *builder) driver(o *scenarios.Outlet, secret func(string) powerctl.Secret) (powerctl.Outlet, error) {
	set := o.Settings
	switch o.Driver {
	case scenarios.DriverExec:
		return exec.New(exec.Config{Name: o.Name, Off: o.Lists["off"], On: o.Lists["on"], State: o.Lists["state"],
			Identify: o.Lists["identify"], Pin: o.Pin["identity"], Timeout: o.Timeout, Class: o.Class})
	case scenarios.DriverManual:
		return manual.New(manual.Config{Name: o.Name, Class: o.Class, In: b.a.in, Out: b.a.errs})
	case scenarios.DriverSNMP:
		return b.snmp(o, secret)
	case scenarios.DriverIPMI:
		return ipmi.New(ipmi.Config{Name: o.Name, Address: set["address"], User: set["user"], Password: secret("password"),
			BMCKey: secret("bmc_key"), CipherSuite: ipmi.CipherSuite(o.Number("cipher")), Timeout: o.Timeout,
			Pin: ipmi.Pin{GUID: o.Pin["guid"], Serial: o.Pin["serial"]}})
	case scenarios.DriverRedfish:
		return redfish.New(redfish.Config{Name: o.Name, URL: set["url"], User: set["user"], Password: secret("password"),
			Auth: redfish.Auth(set["auth"]), System: set["system"], Outlet: set["outlet"], CAFile: set["ca_file"],
			Fingerprint: set["fingerprint"], Timeout: o.Timeout,
			Pin: redfish.Pin{UUID: o.Pin["uuid"], Serial: o.Pin["serial"], Label: o.Pin["label"]}})
	case scenarios.DriverSerial:
		return b.serial(o)
	case scenarios.DriverHID:
		h, err := hidrelay.New(hidrelay.Config{Name: o.Name, Model: hidrelay.Model(set["model"]), Serial: set["serial"],
			Relay: o.Number("relay"), Contact: powerctl.Contact(set["contact"]), Class: o.Class, Report: o.Number("report"), Timeout: o.Timeout})
		if err == nil {
			b.close = append(b.close, h.Close)
		}
		return h, err
	}
	return b.byNetwork(o, secret)
}

// byNetwork builds the outlets that hang on a service.
func (b *builder) byNetwork(o *scenarios.Outlet, secret func(string) powerctl.Secret) (powerctl.Outlet, error) {
	set := o.Settings
	switch o.Driver {
	case scenarios.DriverHTTP:
		return b.http(o, secret)
	case scenarios.DriverQuarch:
		return quarch.New(quarch.Config{Name: o.Name, Address: set["address"], URL: set["url"], Port: set["port"], Module: o.Number("module"),
			Signals: o.Lists["signals"], Class: o.Class, Timeout: o.Timeout, Pin: quarch.Pin{Serial: o.Pin["serial"]}})
	case scenarios.DriverPowerman:
		return powerman.New(powerman.Config{Name: o.Name, Address: withPort(set["address"], "10101"), Node: set["node"], Class: o.Class,
			Timeout: o.Timeout, Pin: powerman.Pin{Device: o.Pin["device"]}})
	case scenarios.DriverNUT:
		return nut.New(nut.Config{Name: o.Name, Address: withPort(set["address"], "3493"), UPS: set["ups"], Outlet: o.Number("outlet"),
			User: set["user"], Password: secret("password"), TLS: set["tls"] == "true", CAFile: set["ca_file"], Fingerprint: set["fingerprint"],
			Class: o.Class, Timeout: o.Timeout, Pin: nut.Pin{Serial: o.Pin["serial"], OutletName: o.Pin["outlet_name"]}})
	case scenarios.DriverPDUDaemon:
		return pdudaemon.New(pdudaemon.Config{Name: o.Name, URL: set["url"], PDU: set["pdu"], Port: o.Number("port"), Class: o.Class, Timeout: o.Timeout})
	case scenarios.DriverLabgrid:
		return labgrid.New(labgrid.Config{Name: o.Name, Program: set["program"], Coordinator: set["coordinator"], Place: set["place"],
			Resource: set["resource"], Reads: set["reads"], Class: o.Class, Timeout: o.Timeout})
	}
	return nil, fmt.Errorf("driver %s is not in this version", o.Driver)
}

// withPort adds the port that a service has when nobody says otherwise.
func withPort(address, port string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), port)
}

func (b *builder) http(o *scenarios.Outlet, secret func(string) powerctl.Secret) (powerctl.Outlet, error) {
	set := o.Settings
	profiles, err := httprelay.Load()
	if err != nil {
		return nil, err
	}
	if file := set["profile_file"]; file != "" {
		own, err := httprelay.LoadFile(file)
		if err != nil {
			return nil, err
		}
		profiles = append(profiles, own)
	}
	return httprelay.New(httprelay.Config{Name: o.Name, URL: set["url"], Profiles: profiles, Profile: set["profile"], Outlet: o.Number("outlet"),
		User: set["user"], Password: secret("password"), CAFile: set["ca_file"], Fingerprint: set["fingerprint"], Class: o.Class,
		Timeout: o.Timeout, Pin: httprelay.Pin{Serial: o.Pin["serial"], OutletName: o.Pin["outlet_name"]}})
}

func (b *builder) snmp(o *scenarios.Outlet, secret func(string) powerctl.Secret) (powerctl.Outlet, error) {
	set := o.Settings
	profiles, err := snmp.Load()
	if err != nil {
		return nil, err
	}
	if file := set["profile_file"]; file != "" {
		own, err := snmp.LoadFile(file)
		if err != nil {
			return nil, err
		}
		profiles = append(profiles, own)
	}
	return snmp.New(snmp.Config{Address: set["address"], Version: snmp.Version(set["version"]), Community: secret("community"),
		User: snmp.User{Name: set["user"], Auth: set["auth"], AuthPass: secret("auth_password"), Priv: set["priv"],
			PrivPass: secret("priv_password"), Context: set["context"]},
		Profiles: profiles, Profile: set["profile"], Index: set["index"], Name: set["outlet_name"], Timeout: o.Timeout, Retries: o.Number("retries"),
		Pin: snmp.Pin{SysObjectID: o.Pin["sysobjectid"], Serial: o.Pin["serial"], OutletName: o.Pin["outlet_name"]}})
}

// serial opens the port once for all relays on it.
func (b *builder) serial(o *scenarios.Outlet) (powerctl.Outlet, error) {
	set := o.Settings
	c := serialrelay.Config{Path: set["port"], Protocol: serialrelay.Protocol(set["protocol"]), Channels: o.Number("channels"),
		Readback: serialrelay.Readback(set["readback"]), Baud: o.Number("baud"), Timeout: o.Timeout, Pin: o.Pin["board"]}
	board := b.boards[c]
	if board == nil {
		var err error
		if board, err = serialrelay.Plan(c); err != nil {
			return nil, err // of the configuration
		}
		if b.dry {
			return b.relay(board, o)
		}
		if board, err = serialrelay.Open(b.ctx, c); err != nil {
			return nil, &powerctl.OpError{Op: "open", Outlet: o.Name, Step: "the board on " + c.Path, Err: err}
		}
		b.boards[c] = board
		b.close = append(b.close, board.Close)
	}
	return b.relay(board, o)
}

func (b *builder) relay(board *serialrelay.Board, o *scenarios.Outlet) (powerctl.Outlet, error) {
	return board.Outlet(serialrelay.OutletConfig{Name: o.Name, Channel: o.Number("channel"), Contact: powerctl.Contact(o.Settings["contact"]), Class: o.Class})
}

// safety says how a bench's outlet is to be held.
func safety(b *scenarios.Bench, leave scenarios.Leave) powerctl.Safety {
	owner := b.Outlet.Lease.Owner
	if owner == "" {
		owner = "unknown user"
		if u, err := user.Current(); err == nil {
			owner = u.Username
		}
	}
	return powerctl.Safety{MinOff: b.Timing.MinOff, MinOn: b.Outlet.MinOn, Owner: owner, Lease: b.Outlet.Lease.For, Dir: b.Outlet.Lease.Dir, Leave: string(leave)}
}

// refuse is an error when the device itself can switch the outlet; it prints the other warnings.
func (a *app) refuse(ctx context.Context, o powerctl.Outlet) error {
	w, can := o.(powerctl.Warner)
	if !can {
		return nil
	}
	list, err := w.Warnings(ctx)
	if err != nil {
		return fmt.Errorf("read the outlet's settings: %w", err)
	}
	for _, warning := range list {
		if warning.Switches {
			return usage.Errorf("the outlet can switch by itself: %s; turn that off in the device first", warning)
		}
		fmt.Fprintln(a.errs, "warning: "+warning.Text)
	}
	return nil
}

// hold is an outlet that this process alone switches, and what its drivers hold open.
type hold struct {
	powerctl.Holder
	drivers *outlets
	guard   *guard          // nil where none can do anything
	leave   scenarios.Leave // on or off
}

// hold builds the outlet of a bench and takes it. Everything that another process would have to know
// is said: what an earlier one left unfinished, and what the device may do by itself. found is the outlet's
// state before the run, where an earlier process has read it.
func (a *app) hold(ctx context.Context, b *scenarios.Bench, found powerctl.State) (*hold, error) {
	o, err := a.outlet(ctx, b, false)
	if err != nil {
		return nil, err
	}
	leave := b.Outlet.Leave
	if leave == scenarios.LeaveFound {
		if found == powerctl.Unknown {
			var r powerctl.Result
			r, err = o.State(ctx)
			found = r.State
		}
		leave = scenarios.LeaveOn
		if found == powerctl.Off {
			leave = scenarios.LeaveOff
		}
	}
	var h powerctl.Holder
	if err == nil {
		h, err = take(ctx, o.Outlet, b, leave)
	}
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	held := &hold{Holder: h, drivers: o, leave: leave}
	if err := a.refuse(ctx, h); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	if guarded(&b.Outlet) {
		if held.guard, err = startGuard(b); err != nil {
			return nil, errors.Join(err, held.Close())
		}
	}
	for _, r := range h.Found() {
		if r.Intent.Open() {
			fmt.Fprintf(a.errs, "warning: %v: whoever switched it %s at %s never saw it take effect\n", r.Outlet, r.Intent.Op,
				r.Intent.At.Local().Format(time.DateTime))
		}
	}
	if t := o.Capabilities().Tried; t.Experimental() {
		fmt.Fprintf(a.errs, "warning: outlet %q: its driver is %s\n", b.Outlet.Name, t)
	}
	return held, nil
}

// proven reports whether the wiring of every feed was proven.
func proven(h powerctl.Holder) bool {
	return !slices.ContainsFunc(h.Found(), func(r powerctl.Record) bool { return r.Wiring == nil })
}

// Close gives the outlet back.
func (h *hold) Close() error {
	errs := []error{h.Holder.Close()}
	if h.guard != nil {
		errs = append(errs, h.guard.dismiss())
	}
	return errors.Join(append(errs, h.drivers.Close())...)
}
