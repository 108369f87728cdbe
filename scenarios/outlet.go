package scenarios

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"plugpull/internal/strictyaml"
	"plugpull/powerctl"
)

// Driver names a driver of powerctl.
type Driver string

// The drivers that a bench file can name.
const (
	DriverExec      Driver = "exec"
	DriverManual    Driver = "manual"
	DriverSNMP      Driver = "snmp"
	DriverIPMI      Driver = "ipmi"
	DriverRedfish   Driver = "redfish"
	DriverSerial    Driver = "serial"
	DriverHID       Driver = "hid"
	DriverHTTP      Driver = "http"
	DriverQuarch    Driver = "quarch"
	DriverPowerman  Driver = "powerman"
	DriverNUT       Driver = "nut"
	DriverPDUDaemon Driver = "pdudaemon"
	DriverLabgrid   Driver = "labgrid"
	DriverGroup     Driver = "group"
)

// Outlet is the switch, or a group of them.
type Outlet struct {
	Driver Driver
	Name   string
	// Class is empty where the file leaves it to the driver.
	Class   powerctl.Class
	Timeout time.Duration // of each exchange with the device; zero for DriverManual and DriverGroup
	// Settings are the driver's own keys, each checked against Keys; a secret stands under its
	// key with _file or _env. Lists are in Lists.
	Settings map[string]string
	Lists    map[string][]string
	// Pin is what the device must say of itself.
	Pin map[string]string
	// Feeds are the members of a group.
	Feeds []Outlet
	// Line is where the outlet begins in its file.
	Line int

	// The rest is of the outlet as a whole, and empty in a feed.
	Leave Leave
	MinOn time.Duration
	Lease Lease
}

// Leave is the state in which the outlet is left when a run ends, however it ends.
type Leave string

// The states to leave behind.
const (
	LeaveOn    Leave = "on"
	LeaveOff   Leave = "off"
	LeaveFound Leave = "as_found" // as it was read before the run; on where that was no clear off
)

// Lease says how other control hosts are kept away.
type Lease struct {
	Owner string        // who holds the outlets, for people; empty: the user
	For   time.Duration // without a sign of life
	Dir   string        // where the outlets' records lie; empty: this machine's place
}

// Number returns a setting that was checked to be a number, zero for none.
func (o *Outlet) Number(key string) int {
	n, _ := strconv.Atoi(o.Settings[key])
	return n
}

// Kind is what a key of a driver holds.
type Kind uint8

// The kinds.
const (
	Text    Kind = iota
	Number       // a whole number in Least to Most
	Word         // one of Words
	Path         // taken from the bench file's folder
	Command      // a program and its arguments
	List         // of words
	Secret       // never in the file: KEY_file names a file, KEY_env a variable of the environment
)

// Key is one that a driver takes, beside those that every outlet has.
type Key struct {
	Name        string
	Kind        Kind
	Needed      bool
	Default     string
	Words       []string
	Least, Most int
	Want        string // what it is, in words
}

// Keys is what a driver's outlet takes: its own keys, and what it can be pinned to.
type Keys struct {
	Own []Key
	// Pins are the keys below pin.
	Pins []string
	// Class: the driver cannot know what loses power, so that the file must say it.
	Class bool
}

var (
	urlKey     = Key{Name: "url", Needed: true, Want: "the device's address, such as https://192.0.2.9"}
	addressKey = Key{Name: "address", Needed: true, Want: "host or host:port"}
	userKey    = Key{Name: "user", Want: "a user's name"}
	passKey    = Key{Name: "password", Kind: Secret}
	caKey      = Key{Name: "ca_file", Kind: Path, Want: "a PEM file of authorities"}
	printKey   = Key{Name: "fingerprint", Want: "the SHA-256 of the device's certificate, in hexadecimal"}
	contactKey = Key{Name: "contact", Kind: Word, Needed: true, Words: []string{string(powerctl.NormallyOpen), string(powerctl.NormallyClosed)}}
	profileKey = Key{Name: "profile_file", Kind: Path, Want: "a profile of your own"}
)

// driverKeys is the one list of drivers and of what they take.
var driverKeys = map[Driver]Keys{
	DriverExec: {Class: true, Pins: []string{"identity"}, Own: []Key{
		{Name: "off", Kind: Command, Needed: true}, {Name: "on", Kind: Command, Needed: true},
		{Name: "state", Kind: Command}, {Name: "identify", Kind: Command},
	}},
	DriverManual: {Class: true},
	DriverSNMP: {Pins: []string{"sysobjectid", "serial", "outlet_name"}, Own: []Key{
		addressKey,
		{Name: "version", Kind: Word, Words: []string{"1", "2c", "3"}, Default: "2c"},
		{Name: "community", Kind: Secret},
		{Name: "user", Want: "a user's name (version 3)"},
		{Name: "auth", Kind: Word, Words: []string{"md5", "sha", "sha224", "sha256", "sha384", "sha512"}},
		{Name: "auth_password", Kind: Secret},
		{Name: "priv", Kind: Word, Words: []string{"des", "aes", "aes192", "aes256", "aes192c", "aes256c"}},
		{Name: "priv_password", Kind: Secret},
		{Name: "context", Want: "an SNMPv3 context"},
		{Name: "profile", Default: "auto", Want: "a profile's name (plugpull power list), or auto"},
		profileKey,
		{Name: "index", Want: "the outlet's number, such as 3 or 1.3"},
		{Name: "outlet_name", Want: "the outlet's name in the device, in place of index"},
		{Name: "retries", Kind: Number, Default: "2", Least: 0, Most: 20},
	}},
	DriverIPMI: {Pins: []string{"guid", "serial"}, Own: []Key{
		addressKey, {Name: "user", Needed: true, Want: "a user's name"}, passKey, {Name: "bmc_key", Kind: Secret},
		{Name: "cipher", Kind: Word, Words: []string{"3", "17"}, Default: "17"},
	}},
	DriverRedfish: {Pins: []string{"uuid", "serial", "label"}, Own: []Key{
		urlKey, userKey, passKey, caKey, printKey,
		{Name: "auth", Kind: Word, Words: []string{"basic", "session"}, Default: "basic"},
		{Name: "system", Want: "the path of a system, such as /redfish/v1/Systems/1"},
		{Name: "outlet", Want: "the path of a PDU's outlet, in place of system"},
	}},
	DriverSerial: {Class: true, Pins: []string{"board"}, Own: []Key{
		{Name: "port", Kind: Path, Needed: true, Want: "the serial port, below /dev/serial/by-id or by-path"},
		{Name: "protocol", Kind: Word, Needed: true, Words: []string{"lcus", "kmtronic", "numato"}},
		{Name: "channels", Kind: Number, Needed: true, Least: 1, Most: 64},
		{Name: "channel", Kind: Number, Needed: true, Least: 0, Most: 64},
		{Name: "readback", Kind: Word, Words: []string{"text", "bytes", "none", "probe", "read", "readall"}},
		{Name: "baud", Kind: Number, Least: 300, Most: 4000000},
		contactKey,
	}},
	DriverHID: {Class: true, Own: []Key{
		{Name: "model", Kind: Word, Needed: true, Words: []string{"usbrelay", "hidrelay"}},
		{Name: "serial", Needed: true, Want: "the board's serial, which pins it"},
		{Name: "relay", Kind: Number, Needed: true, Least: 1, Most: 9},
		{Name: "report", Kind: Number, Least: 0, Most: 1, Default: "0"},
		contactKey,
	}},
	DriverHTTP: {Pins: []string{"serial", "outlet_name"}, Own: []Key{
		urlKey, {Name: "profile", Needed: true, Want: "a profile's name (plugpull power list)"}, profileKey,
		{Name: "outlet", Kind: Number, Needed: true, Least: 1, Most: 999},
		userKey, passKey, caKey, printKey,
	}},
	DriverQuarch: {Pins: []string{"serial"}, Own: []Key{
		{Name: "address", Want: "host or host:port, for TCP"}, {Name: "url", Want: "http://host, for REST, in place of address"},
		{Name: "port", Kind: Path, Want: "a serial port, in place of address"},
		{Name: "module", Kind: Number, Least: 1, Most: 999}, {Name: "signals", Kind: List, Want: "a list of the signals that carry the drive's power, such as [12V_POWER, 12V_CHARGE]"},
	}},
	DriverPowerman: {Class: true, Pins: []string{"device"}, Own: []Key{addressKey, {Name: "node", Needed: true, Want: "the node's name in powerman"}}},
	DriverNUT: {Class: true, Pins: []string{"serial", "outlet_name"}, Own: []Key{
		addressKey, {Name: "ups", Needed: true, Want: "the device's name in ups.conf"},
		{Name: "outlet", Kind: Number, Needed: true, Least: 1, Most: 999}, userKey, passKey,
		{Name: "tls", Kind: Word, Words: []string{"true", "false"}, Default: "false"}, caKey, printKey,
	}},
	DriverPDUDaemon: {Class: true, Own: []Key{
		urlKey, {Name: "pdu", Needed: true, Want: "the PDU's hostname in pdudaemon"}, {Name: "port", Kind: Number, Needed: true, Least: 1, Most: 999},
	}},
	DriverLabgrid: {Class: true, Own: []Key{
		{Name: "place", Needed: true, Want: "the place's whole name"}, {Name: "resource", Want: "the name of the place's power resource"},
		{Name: "coordinator", Want: "host:port of the coordinator"}, {Name: "program", Kind: Path, Want: "the path of labgrid-client"},
		{Name: "reads", Want: "how labgrid reads the place's power"},
	}},
}

// Drivers returns every driver in the order of the documentation.
func Drivers() []Driver {
	return []Driver{DriverSNMP, DriverIPMI, DriverRedfish, DriverHTTP, DriverSerial, DriverHID, DriverQuarch,
		DriverPowerman, DriverNUT, DriverPDUDaemon, DriverLabgrid, DriverExec, DriverManual, DriverGroup}
}

// KeysOf returns what a driver takes.
func KeysOf(d Driver) Keys { return driverKeys[d] }

// outlet reads the outlet of a bench.
func outlet(s *section, folder string) Outlet {
	defer s.Done()
	o := member(s, folder, "")
	o.Leave = strictyaml.Choice(s, "leave", LeaveOn, LeaveOn, LeaveOff, LeaveFound)
	o.MinOn = s.Duration("min_on", 0, 100*time.Millisecond, time.Hour)
	o.Lease = lease(s.Sub("lease"), folder)
	if o.Leave == LeaveFound && (o.Driver == DriverManual || o.Driver == DriverExec && !s.Has("state")) {
		s.Problem("leave", "as_found for an outlet whose state cannot be read, want on or off, or outlet.state")
	}
	return o
}

func lease(s *section, folder string) Lease {
	defer s.Done()
	return Lease{
		Owner: s.Text("owner", "who holds the outlet, for people to read"),
		For:   s.Duration("for", 10*time.Minute, 10*time.Second, 7*24*time.Hour),
		Dir:   resolve(folder, s.Text("dir", "a folder that all control hosts of these outlets share")),
	}
}

// member reads what an outlet and a feed of a group have in common.
func member(s *section, folder string, of Driver) Outlet {
	o := Outlet{Settings: map[string]string{}, Lists: map[string][]string{}, Pin: map[string]string{}, Line: s.Line("driver")}
	all := Drivers()
	if of == DriverGroup {
		all = slices.DeleteFunc(all, func(d Driver) bool { return d == DriverGroup })
	}
	s.Require("driver", driverWant)
	o.Driver = strictyaml.Choice(s, "driver", "", all...)
	const nameWant = "the outlet's name, one line of at most 80 characters"
	s.Require("name", nameWant)
	o.Name = strictyaml.Parsed(s, "name", nameWant, "", func(text string) (string, bool) {
		return text, len(text) <= 80 && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' })
	})
	keys := KeysOf(o.Driver)
	if keys.Class {
		s.Require("class", "mains or drive or chassis")
	}
	o.Class = strictyaml.Choice(s, "class", "", powerctl.Classes()...)
	o.ownKeys(s, folder, keys)
	switch o.Driver {
	case DriverGroup:
		o.feeds(s, folder)
	case DriverManual, "":
	default:
		o.Timeout = s.Duration("timeout", 10*time.Second, 100*time.Millisecond, 10*time.Minute)
	}
	foreign(s, o.Driver)
	return o
}

const driverWant = "the kind of switch, one of those that plugpull power list shows"

func (o *Outlet) feeds(s *section, folder string) {
	s.Require("feeds", "a list of at least two outlets, each with driver, name and the keys of its driver")
	list := s.Subs("feeds")
	for _, sub := range list {
		o.Feeds = append(o.Feeds, member(sub, folder, DriverGroup))
		sub.Done()
	}
	if len(list) == 1 {
		s.Problem("feeds", "one outlet, want at least two, or that outlet alone in place of the group")
	}
}

// foreign reports keys of other drivers by name, so that a driver which was changed and
// whose keys were not is told so.
func foreign(s *section, d Driver) {
	if d == "" { // said already; its keys cannot be judged
		s.Know(s.Keys()...)
		return
	}
	for _, key := range s.Keys() {
		if s.Known(key) || outletKeys[key] {
			continue
		}
		var of []string
		for _, other := range Drivers() {
			if other != d && slices.ContainsFunc(driverKeys[other].Own, func(k Key) bool { return slices.Contains(k.names(), key) }) {
				of = append(of, string(other))
			}
		}
		if key == "timeout" || key == "feeds" || len(of) > 0 {
			if key == "timeout" {
				of = []string{"the drivers of devices"}
			}
			if key == "feeds" {
				of = []string{string(DriverGroup)}
			}
			s.Know(key)
			s.Problem(key, "given for driver %s, want it for %s only", d, strings.Join(of, ", "))
		}
	}
}

// outletKeys are those of the outlet as a whole.
var outletKeys = map[string]bool{"leave": true, "min_on": true, "lease": true}

func (k Key) names() []string {
	if k.Kind == Secret {
		return []string{k.Name, k.Name + "_file", k.Name + "_env"}
	}
	return []string{k.Name}
}

func (o *Outlet) ownKeys(s *section, folder string, keys Keys) {
	for _, k := range keys.Own {
		if k.Needed && k.Kind != Command {
			s.Require(k.Name, k.want())
		}
		switch k.Kind {
		case List:
			if list := s.Words(k.Name, k.Want); list != nil {
				o.Lists[k.Name] = list
			}
		case Command:
			if k.Needed {
				s.Require(k.Name, argvWant)
			}
			if list := argv(s, k.Name, folder); list != nil {
				o.Lists[k.Name] = list
			}
			continue
		case Secret:
			o.secret(s, folder, k)
			continue
		case Number:
			otherwise, _ := strconv.Atoi(k.Default)
			if s.Has(k.Name) || k.Default != "" {
				o.Settings[k.Name] = strconv.Itoa(s.Number(k.Name, otherwise, k.Least, k.Most))
			} else {
				s.Know(k.Name)
			}
			continue
		case Word:
			o.set(k.Name, strictyaml.Choice(s, k.Name, k.Default, k.Words...))
		case Path:
			o.set(k.Name, resolve(folder, s.Text(k.Name, k.Want)))
		case Text:
			text := s.Text(k.Name, k.Want)
			if text == "" {
				text = k.Default
			}
			o.set(k.Name, text)
		}
	}
	if len(keys.Pins) == 0 {
		return
	}
	pin := s.Sub("pin")
	for _, key := range keys.Pins {
		if text := pin.Text(key, "what the device says of itself, as plugpull power identify prints it"); text != "" {
			o.Pin[key] = text
		}
	}
	pin.Done()
}

func (o *Outlet) set(key, text string) {
	if text != "" {
		o.Settings[key] = text
	}
}

func (k Key) want() string {
	switch k.Kind {
	case Word:
		return strings.Join(k.Words, " or ")
	case Number:
		return fmt.Sprintf("a whole number from %d to %d", k.Least, k.Most)
	}
	return k.Want
}

// secret never repeats what the file holds.
func (o *Outlet) secret(s *section, folder string, k Key) {
	file, env := k.Name+"_file", k.Name+"_env"
	if s.Has(k.Name) {
		s.Know(k.Name)
		s.Problem(k.Name, "a secret in the file, want it in a file of its own (%s) or in the environment (%s)", file, env)
	}
	o.set(file, resolve(folder, s.Text(file, "the path of a file that holds the secret alone")))
	// What stands there is not repeated: it may be the secret itself.
	name := s.Text(env, "the name of a variable of the environment")
	if strings.ContainsFunc(name, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		s.Problem(env, "no name, want the name of a variable of the environment")
		name = ""
	}
	o.set(env, name)
	if s.Has(file) && s.Has(env) {
		s.Problem(env, "given beside %s, want one of the two", file)
	}
}
