package ipmi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"plugpull/powerctl"
)

// device is what a BMC says of itself. guid and serial are empty where it does not say.
type device struct {
	manufacturer, product int
	guid, serial          string
}

// String holds nothing that a firmware update changes.
func (d device) String() string {
	s := fmt.Sprintf("manufacturer %d product %d", d.manufacturer, d.product)
	if d.serial != "" {
		s = "serial " + d.serial + " " + s
	}
	if d.guid != "" {
		s = "guid " + d.guid + " " + s
	}
	return s
}

func (s *session) identify(ctx context.Context) (device, error) {
	b, err := s.ask(ctx, getDeviceID, nil)
	if err != nil {
		return device{}, err
	}
	if len(b) < 11 {
		return device{}, fmt.Errorf("%s: got % x: %w", getDeviceID.name, b, errProtocol)
	}
	d := device{
		manufacturer: int(b[6]) | int(b[7])<<8 | int(b[8]&0x0f)<<16,
		product:      int(b[9]) | int(b[10])<<8,
	}
	if d.guid, err = s.guid(ctx); err != nil {
		return device{}, err
	}
	if d.serial, err = s.serial(ctx); err != nil {
		return device{}, err
	}
	return d, nil
}

// verify reads what is pinned, and only that.
func (s *session) verify(ctx context.Context, p Pin) error {
	for _, pinned := range []struct {
		field, want string
		read        func(context.Context) (string, error)
		same        func(a, b string) bool
	}{
		{"guid", p.GUID, s.guid, func(a, b string) bool { return bareGUID(a) == bareGUID(b) }},
		{"serial", p.Serial, s.serial, func(a, b string) bool { return a == b }},
	} {
		if pinned.want == "" {
			continue
		}
		got, err := pinned.read(ctx)
		if err != nil {
			return err
		}
		if got == "" || !pinned.same(got, pinned.want) {
			return &powerctl.IdentityError{What: pinned.field, Want: pinned.want, Got: got}
		}
	}
	return nil
}

func bareGUID(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }

// guid returns the system's GUID in the order of the wire, as `ipmitool mc guid
// rfc4122` prints it; empty where there is none. All zeros and all ones are none:
// boards are shipped like that.
func (s *session) guid(ctx context.Context) (string, error) {
	b, err := s.ask(ctx, getSystemGUID, nil)
	if absent(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if len(b) != 16 {
		return "", fmt.Errorf("%s: got % x: %w", getSystemGUID.name, b, errProtocol)
	}
	h := hex.EncodeToString(b)
	if strings.Trim(h, "0") == "" || strings.Trim(h, "f") == "" {
		return "", nil
	}
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-"), nil
}

// absent tells a BMC that does not have a thing from one that cannot say now.
func absent(err error) bool {
	var ce *CompletionError
	if !errors.As(err, &ce) {
		return false
	}
	switch ce.Code {
	case notSupported, 0xc2, 0xc9, 0xcb, 0xcc, 0xcd, 0xd4, 0xd6:
		return true
	}
	return false
}

// fruChunk is how much of an inventory is read at once: every BMC can do that.
const fruChunk = 16

// fruArea is where an area of the inventory (Platform Management FRU
// Information Storage Definition 1.0) has its serial number.
type fruArea struct {
	pointer int // where the common header has the area's offset
	fields  int // offset of the first field in the area
	serial  int // which field it is
}

// Product, board and chassis, in the order in which their serial numbers are believed.
var fruAreas = [...]fruArea{{4, 3, 4}, {3, 6, 2}, {2, 3, 1}}

// serial returns the serial number in the inventory of the BMC's own FRU, empty
// where it has none.
func (s *session) serial(ctx context.Context) (string, error) {
	info, err := s.ask(ctx, getFRUInventory, []byte{0})
	if absent(err) || err == nil && (len(info) != 3 || info[2]&1 != 0) {
		return "", nil // none, or one that is read in words
	}
	if err != nil {
		return "", err
	}
	f := fru{session: s, size: int(info[0]) | int(info[1])<<8}
	common, err := f.read(ctx, 0, 8)
	if err != nil || len(common) != 8 || common[0]&0x0f != 1 || checksum(common) != 0 {
		return "", err
	}
	for _, a := range fruAreas {
		if common[a.pointer] == 0 {
			continue
		}
		serial, err := f.field(ctx, 8*int(common[a.pointer])+a.fields, a.serial)
		if err != nil || serial != "" {
			return serial, err
		}
	}
	return "", nil
}

type fru struct {
	session *session
	size    int
}

// read returns n bytes, none where the inventory does not have them.
func (f fru) read(ctx context.Context, offset, n int) ([]byte, error) {
	if offset+n > f.size {
		return nil, nil
	}
	var out []byte
	for len(out) < n {
		at, count := offset+len(out), min(fruChunk, n-len(out))
		b, err := f.session.ask(ctx, readFRUData, []byte{0, byte(at), byte(at >> 8), byte(count)})
		if absent(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if len(b) != 1+count || int(b[0]) != count {
			return nil, fmt.Errorf("%s: got % x: %w", readFRUData.name, b, errProtocol)
		}
		out = append(out, b[1:]...)
	}
	return out, nil
}

// field returns the text of the n-th field from offset on.
func (f fru) field(ctx context.Context, offset, n int) (string, error) {
	const end = 0xc1
	for i := 0; ; i++ {
		head, err := f.read(ctx, offset, 1)
		if err != nil || len(head) == 0 || head[0] == end {
			return "", err
		}
		length := int(head[0] & 0x3f)
		if i < n {
			offset += 1 + length
			continue
		}
		b, err := f.read(ctx, offset+1, length)
		if err != nil {
			return "", err
		}
		if head[0]>>6 == 3 {
			return printable(b), nil
		}
		return hex.EncodeToString(b), nil // binary, BCD or packed: the bytes tell devices apart
	}
}

// printable drops padding, and everything that would disturb a line of text.
func printable(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		if c >= ' ' && c < 0x7f {
			s.WriteByte(c)
		}
	}
	return strings.TrimSpace(s.String())
}
