package ipmi

import "encoding/binary"

// The RMCP header of every IPMI packet: version 1.0, no acknowledgement, class IPMI.
var rmcpHeader = [...]byte{0x06, 0x00, 0xff, 0x07}

const (
	formatRMCPPlus = 0x06
	nextHeader     = 0x07
)

// Payload types and their flags (IPMI 2.0, tables 13-8 and 13-16).
const (
	payloadIPMI              = 0x00
	payloadOpenRequest       = 0x10
	payloadOpenResponse      = 0x11
	payloadRAKP1             = 0x12
	payloadRAKP2             = 0x13
	payloadRAKP3             = 0x14
	payloadRAKP4             = 0x15
	authenticated       byte = 0x40
	encrypted           byte = 0x80
)

// header returns a packet without a trailer.
func header(kind byte, session, sequence uint32, payload []byte) []byte {
	p := append([]byte(nil), rmcpHeader[:]...)
	p = append(p, formatRMCPPlus, kind)
	p = binary.LittleEndian.AppendUint32(p, session)
	p = binary.LittleEndian.AppendUint32(p, sequence)
	p = binary.LittleEndian.AppendUint16(p, uint16(len(payload)))
	return append(p, payload...)
}

// parsed is a packet taken apart. rest is what follows the payload.
type parsed struct {
	kind              byte
	session, sequence uint32
	payload, rest     []byte
}

const headerLen = len(rmcpHeader) + 12

func parseHeader(p []byte) (parsed, bool) {
	// The sequence number of RMCP, at 2, is not IPMI's business.
	if len(p) < headerLen || p[0] != rmcpHeader[0] || p[3] != rmcpHeader[3] || p[4] != formatRMCPPlus {
		return parsed{}, false
	}
	n := int(binary.LittleEndian.Uint16(p[14:]))
	if len(p) < headerLen+n {
		return parsed{}, false
	}
	return parsed{
		kind: p[5], session: binary.LittleEndian.Uint32(p[6:]), sequence: binary.LittleEndian.Uint32(p[10:]),
		payload: p[headerLen : headerLen+n], rest: p[headerLen+n:],
	}, true
}

// command is a command of IPMI, without its data.
type command struct {
	name          string
	netFn, number byte
}

// The commands that this package sends. Chassis Control is sent with 0 and 1 only.
var (
	getDeviceID      = command{"get device id", 0x06, 0x01}
	getSystemGUID    = command{"get system guid", 0x06, 0x37}
	setPrivilege     = command{"set session privilege level", 0x06, 0x3b}
	closeSession     = command{"close session", 0x06, 0x3c}
	getWatchdog      = command{"get watchdog timer", 0x06, 0x25}
	getChassisStatus = command{"get chassis status", 0x00, 0x01}
	chassisControl   = command{"chassis control", 0x00, 0x02}
	getFRUInventory  = command{"get fru inventory area info", 0x0a, 0x10}
	readFRUData      = command{"read fru data", 0x0a, 0x11}
)

// Addresses on the wire: the BMC and the remote console's software.
const (
	bmcAddress     = 0x20
	consoleAddress = 0x81
)

// maxRequests is how many requests of a session have sequence numbers of their
// own, so that an old reply can never pass for a new one.
const maxRequests = 64

func checksum(b []byte) byte {
	var sum byte
	for _, v := range b {
		sum += v
	}
	return -sum
}

// encodeRequest returns the message of a request (IPMI 2.0, 13.8).
func encodeRequest(c command, seq byte, data []byte) []byte {
	m := []byte{bmcAddress, c.netFn << 2}
	m = append(m, checksum(m))
	tail := append([]byte{consoleAddress, seq << 2, c.number}, data...)
	return append(append(m, tail...), checksum(tail))
}

// decodeResponse returns the completion code and data of the reply to exactly
// this request, and false for everything else.
func decodeResponse(m []byte, c command, seq byte) (code byte, data []byte, ok bool) {
	if len(m) < 8 || checksum(m[:3]) != 0 || checksum(m[3:]) != 0 {
		return 0, nil, false
	}
	if m[0] != consoleAddress || m[1] != (c.netFn|1)<<2 || m[4] != seq<<2 || m[5] != c.number {
		return 0, nil, false
	}
	return m[6], m[7 : len(m)-1], true
}
