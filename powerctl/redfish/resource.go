package redfish

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"plugpull/powerctl"
)

// kind is what differs between a system and an outlet.
type kind struct {
	class     powerctl.Class
	odataType string // what @odata.type begins with
	action    string
	parameter string
	off, on   string // never anything else
}

var (
	system = kind{
		class: powerctl.Chassis, odataType: "#ComputerSystem.", action: "ComputerSystem.Reset",
		parameter: "ResetType", off: "ForceOff", on: "On",
	}
	pduOutlet = kind{
		class: powerctl.Mains, odataType: "#Outlet.", action: "Outlet.PowerControl",
		parameter: "PowerState", off: "Off", on: "On",
	}
)

// Sentinels for errors.Is.
var (
	// ErrLocked: the PDU says that the outlet must not be switched.
	ErrLocked = errors.New("the outlet is locked against control")
	// ErrNotAllowed: the device does not list the command among those that it takes.
	ErrNotAllowed = errors.New("the device does not allow the command")
	// errResource: the answer is about something else.
	errResource = errors.New("this is not the resource that was asked for")
)

// resource is a system or an outlet as it was read.
type resource struct {
	*kind
	path   string
	object object
}

func (r *resource) check() error {
	if t := r.object.text("@odata.type"); !strings.HasPrefix(t, r.odataType) {
		return fmt.Errorf("its type is %.60q: %w", t, errResource)
	}
	return nil
}

// state calls nothing on or off that is not exactly that.
func (r *resource) state() powerctl.State {
	locked, lockedOK := r.object.flag("PowerControlLocked")
	moving, movingOK := r.object.flag("PowerStateInTransition")
	switch {
	case !lockedOK || !movingOK:
		return powerctl.Unknown
	case locked:
		return powerctl.Fault
	case moving:
		return powerctl.Pending
	case r.object.object("Status").text("State") == "Absent":
		return powerctl.Unknown
	}
	switch r.object.text("PowerState") {
	case "On":
		return powerctl.On
	case "Off":
		return powerctl.Off
	case "PoweringOn", "PoweringOff":
		return powerctl.Pending
	}
	return powerctl.Unknown
}

// raw is the part of the answer that state looked at.
func (r *resource) raw() string {
	var parts []string
	for _, key := range []string{"PowerState", "PowerStateInTransition", "PowerControlLocked", "Status"} {
		if v, ok := r.object[key]; ok {
			parts = append(parts, fmt.Sprintf("%q:%s", key, v))
		}
	}
	text := "{" + strings.Join(parts, ",") + "}"
	return text[:min(len(text), powerctl.MaxRaw)]
}

// target returns where the action is posted, once the device has said that it takes the value.
func (r *resource) target(c *conversation, value string) (string, error) {
	if locked, ok := r.object.flag("PowerControlLocked"); locked || !ok {
		return "", ErrLocked
	}
	action := r.object.object("Actions").object("#" + r.action)
	target := action.text("target")
	if !isPath(target) || !strings.HasSuffix(strings.TrimRight(target, "/"), "/"+r.action) {
		return "", fmt.Errorf("the target of %s is %.100q: %w", r.action, target, ErrNotAllowed)
	}
	allowed, err := r.allowed(c, action)
	if err != nil {
		return "", err
	}
	// A device that lists nothing leaves the choice to the answer.
	if allowed != nil && !slices.Contains(allowed, value) {
		return "", fmt.Errorf("%s is not among %q: %w", value, allowed, ErrNotAllowed)
	}
	return target, nil
}

// allowed returns the values that the action takes, nil when the device lists none.
func (r *resource) allowed(c *conversation, action object) ([]string, error) {
	if raw, ok := action[r.parameter+"@Redfish.AllowableValues"]; ok {
		values := []string{}
		if err := json.Unmarshal(raw, &values); err != nil {
			return nil, fmt.Errorf("the allowable values: %w", err)
		}
		return values, nil
	}
	path := action.text("@Redfish.ActionInfo")
	if path == "" {
		return nil, nil
	}
	if !isPath(path) {
		return nil, fmt.Errorf("the action's description is at %.100q: %w", path, errResource)
	}
	info, err := c.get(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var parameters []struct {
		Name            string
		AllowableValues []string
	}
	if err := json.Unmarshal(info["Parameters"], &parameters); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for _, p := range parameters {
		if p.Name == r.parameter && p.AllowableValues != nil {
			return p.AllowableValues, nil
		}
	}
	return nil, nil
}

// device is what a system or a PDU says of itself; fields are empty where it does not say.
type device struct{ uuid, serial, manufacturer, model string }

func (d device) String() string {
	var parts []string
	for _, p := range [][2]string{{"uuid", d.uuid}, {"serial", d.serial}, {"manufacturer", d.manufacturer}, {"model", d.model}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	return strings.Join(parts, " ")
}

// device reads the owner of an outlet, the PDU, in its stead.
func (r *resource) device(c *conversation) (device, error) {
	o := r.object
	if r.kind == &pduOutlet {
		pdu, ok := pduOf(r.path)
		if !ok {
			return device{}, fmt.Errorf("the PDU of %s: %w", r.path, errResource)
		}
		var err error
		if o, err = c.get(pdu); err != nil {
			return device{}, fmt.Errorf("read %s: %w", pdu, err)
		}
	}
	d := device{serial: o.line("SerialNumber"), manufacturer: o.line("Manufacturer"), model: o.line("Model")}
	uuid := strings.ToLower(o.line("UUID"))
	if strings.Trim(uuid, "0-") != "" && strings.Trim(uuid, "f-") != "" { // boards are shipped with such
		d.uuid = uuid
	}
	return d, nil
}

// pduOf is the path of the PDU that an outlet is part of.
func pduOf(outlet string) (string, bool) {
	pdu, _, ok := strings.Cut(outlet, "/Outlets/")
	return pdu, ok
}

func (r *resource) label() string {
	if l := r.object.line("UserLabel"); l != "" {
		return l
	}
	return r.object.line("Name")
}

func (r *resource) verify(c *conversation, p Pin) error {
	if p.Label != "" && r.label() != p.Label {
		return &powerctl.IdentityError{What: "label", Want: p.Label, Got: r.label()}
	}
	if p.UUID == "" && p.Serial == "" {
		return nil
	}
	d, err := r.device(c)
	if err != nil {
		return err
	}
	if p.UUID != "" && bare(d.uuid) != bare(p.UUID) {
		return &powerctl.IdentityError{What: "uuid", Want: p.UUID, Got: d.uuid}
	}
	if p.Serial != "" && d.serial != p.Serial {
		return &powerctl.IdentityError{What: "serial", Want: p.Serial, Got: d.serial}
	}
	return nil
}

func bare(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
