package ipmi

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

const (
	simUser     = "plug"
	simPassword = "s3cret-of-the-test"
	simKey      = "k9-of-the-test"
	simSerial   = "SN-4711"
)

var simGUID = [16]byte{0x1f, 0x2e, 0x3d, 0x4c, 0x5b, 0x6a, 0x79, 0x88, 0x97, 0xa6, 0xb5, 0xc4, 0xd3, 0xe2, 0xf1, 0x01}

const simGUIDText = "1f2e3d4c-5b6a-7988-97a6-b5c4d3e2f101"

// bmc is a simulated BMC: RMCP+ over UDP with the powertest device behind it.
// ipmitool talks to it too, which shows that it and the driver do not merely
// agree with each other.
type bmc struct {
	device *powertest.Device
	suite  CipherSuite
	conn   *net.UDPConn
	served chan struct{}

	mu       sync.Mutex
	sessions map[uint32]*simSession
	// What a test may change while the BMC runs.
	guid        [16]byte
	fru         []byte
	key         string
	policy      byte
	watchdog    []byte                     // the answer to Get Watchdog Timer
	chosenSuite CipherSuite                // what it claims to have agreed on
	drop        func(kind byte) bool       // loses a packet that arrived
	forge       func(s *simSession) []byte // a packet sent ahead of the reply to a reading
	refuse      map[byte]byte              // command number → completion code
	closed      int
	log         []command
}

type simSession struct {
	rakp
	keys     keys
	active   bool
	last     uint32 // sequence number of the last packet that arrived
	sequence uint32
}

func startBMC(t testing.TB, suite CipherSuite) *bmc {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	b := &bmc{
		device: powertest.NewDevice(), suite: suite, chosenSuite: suite, conn: conn, served: make(chan struct{}),
		sessions: map[uint32]*simSession{}, guid: simGUID, fru: simFRU(simSerial), refuse: map[byte]byte{}, watchdog: make([]byte, 8),
	}
	go b.serve()
	t.Cleanup(b.stop)
	return b
}

// stop ends the BMC; it may be called twice.
func (b *bmc) stop() {
	_ = b.conn.Close()
	<-b.served
}

func (b *bmc) serve() {
	defer close(b.served)
	buf := make([]byte, 2048)
	for {
		n, from, err := b.conn.ReadFromUDP(buf)
		if err != nil {
			return
		}
		for _, reply := range b.handle(bytes.Clone(buf[:n])) {
			_, _ = b.conn.WriteToUDP(reply, from)
		}
	}
}

// change changes what the BMC is while it runs.
func (b *bmc) change(f func(*bmc)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b)
}

func (b *bmc) handle(p []byte) [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := oldCapabilities(p); r != nil {
		return [][]byte{r}
	}
	h, ok := parseHeader(p)
	if !ok || b.drop != nil && b.drop(h.kind) {
		return nil
	}
	switch h.kind {
	case payloadOpenRequest:
		return [][]byte{b.openSession(h.payload)}
	case payloadRAKP1:
		return [][]byte{b.rakp1(h.payload)}
	case payloadRAKP3:
		return [][]byte{b.rakp3(h.payload)}
	}
	s := b.sessions[h.session]
	if s == nil || !s.active {
		return nil
	}
	m, ok := s.keys.unseal(bytes.Clone(p), s.bmcID)
	if !ok || h.sequence <= s.last {
		return nil
	}
	s.last = h.sequence
	return b.inSession(s, p, m)
}

// oldCapabilities answers what ipmitool asks first, in the format of IPMI 1.5.
func oldCapabilities(p []byte) []byte {
	const number = 0x38
	if len(p) < 20 || p[4] != 0 || p[19] != number {
		return nil
	}
	m := response(command{"", 0x06, number}, p[18]>>2, 0, []byte{1, 0x80, 0x04, 0x02, 0, 0, 0, 0})
	return append(append(append(rmcpHeader[:], make([]byte, 9)...), byte(len(m))), m...)
}

func response(c command, seq, code byte, data []byte) []byte {
	m := []byte{consoleAddress, (c.netFn | 1) << 2}
	m = append(m, checksum(m))
	tail := append([]byte{bmcAddress, seq << 2, c.number, code}, data...)
	return append(append(m, tail...), checksum(tail))
}

func (b *bmc) openSession(p []byte) []byte {
	s := &simSession{}
	s.consoleID = binary.LittleEndian.Uint32(p[4:])
	own, _ := suiteOf(b.suite)
	reply := append([]byte{p[0], 0, 4, 0}, le32(s.consoleID)...)
	if p[12] != own.auth || p[20] != own.integrity || p[28] != own.confidentiality {
		reply[1] = 0x11
		return header(payloadOpenResponse, 0, 0, reply)
	}
	s.suite, s.bmcID = own, uint32(len(b.sessions)+100)
	s.guid, s.userKey = b.guid, padKey(simPassword)
	s.bmcKey = s.userKey
	if b.key != "" {
		s.bmcKey = padKey(b.key)
	}
	b.sessions[s.bmcID] = s
	said := bytes.Clone(p[8:])
	if claim, ok := suiteOf(b.chosenSuite); ok {
		said[4], said[12], said[20] = claim.auth, claim.integrity, claim.confidentiality
	} else {
		said[4], said[12], said[20] = 0, 0, 0 // suite 0: no proof of anything
	}
	return header(payloadOpenResponse, 0, 0, append(append(reply, le32(s.bmcID)...), said...))
}

func (b *bmc) rakp1(p []byte) []byte {
	s := b.sessions[binary.LittleEndian.Uint32(p[4:])]
	copy(s.consoleRand[:], p[8:])
	_, _ = rand.Read(s.bmcRand[:])
	s.role, s.user = p[24], string(p[28:28+int(p[27])])
	reply := append([]byte{p[0], 0, 0, 0}, le32(s.consoleID)...)
	if s.user != simUser {
		reply[1] = 0x0d
		return header(payloadRAKP2, 0, 0, reply)
	}
	reply = append(append(append(reply, s.bmcRand[:]...), s.guid[:]...), s.code2()...)
	return header(payloadRAKP2, 0, 0, reply)
}

func (b *bmc) rakp3(p []byte) []byte {
	s := b.sessions[binary.LittleEndian.Uint32(p[4:])]
	reply := append([]byte{p[0], 0, 0, 0}, le32(s.consoleID)...)
	if !hmac.Equal(p[8:], s.code3()) {
		reply[1] = 0x0f
		return header(payloadRAKP4, 0, 0, reply)
	}
	s.keys, s.active = s.rakp.keys(), true
	return header(payloadRAKP4, 0, 0, append(reply, s.code4()...))
}

// inSession returns the packets that answer one request.
func (b *bmc) inSession(s *simSession, p, m []byte) [][]byte {
	c, seq, data := command{netFn: m[1] >> 2, number: m[5]}, m[4]>>2, m[6:len(m)-1]
	b.log = append(b.log, c)
	body, silent := b.execute(s, c, data)
	if silent {
		return nil
	}
	var out [][]byte
	if b.forge != nil && c.number == getChassisStatus.number && c.netFn == 0 {
		out = append(out, b.forge(s))
	}
	reply := s.seal(response(c, seq, body[0], body[1:]))
	if c.netFn == getChassisStatus.netFn {
		return append(out, b.device.Outgoing(p, reply)...)
	}
	return append(out, reply)
}

func (s *simSession) seal(m []byte) []byte {
	s.sequence++
	return s.keys.seal(s.consoleID, s.sequence, m)
}

// execute returns the completion code and the data after it.
func (b *bmc) execute(s *simSession, c command, data []byte) (body []byte, silent bool) {
	if code := b.refuse[c.number]; code != 0 {
		return []byte{code}, false
	}
	switch c.number<<4 | c.netFn {
	case getDeviceID.number<<4 | getDeviceID.netFn:
		return []byte{0, 0x20, 1, 2, 0x12, 2, 0xbf, 0x57, 1, 0, 0x34, 0x12, 0, 0, 0, 0}, false
	case getChassisStatus.number<<4 | getChassisStatus.netFn:
		return b.status(), false
	case chassisControl.number<<4 | chassisControl.netFn:
		return b.control(data)
	}
	switch c.number {
	case getSystemGUID.number:
		guid := b.guid
		if b.device.Other() {
			guid[0]++
		}
		return append([]byte{0}, guid[:]...), false
	case getWatchdog.number:
		return append([]byte{0}, b.watchdog...), false
	case setPrivilege.number:
		return []byte{0, data[0]}, false
	case closeSession.number:
		b.closed++
		s.active = false
		return []byte{0}, false
	case getFRUInventory.number:
		return []byte{0, byte(len(b.fru)), 0, 0}, false
	case readFRUData.number:
		at := int(data[1]) | int(data[2])<<8
		return append([]byte{0, data[3]}, b.fru[at:at+int(data[3])]...), false
	}
	return []byte{0xc1}, false
}

func (b *bmc) control(data []byte) ([]byte, bool) {
	var a powertest.Answer
	switch data[0] {
	case 0: // power down
		a = b.device.Switch(powerctl.Off)
	case 1: // power up
		a = b.device.Switch(powerctl.On)
	default: // a command that the suite does not count is worth a failure
		a = b.device.Switch(powerctl.Fault)
	}
	switch {
	case a.Busy:
		return []byte{codeBusy}, false
	case a.Failed:
		return []byte{0xff}, false
	}
	return []byte{0}, a.Silent
}

// offLike are bodies of Get Chassis Status that are not exactly off.
var offLike = [][]byte{
	{0}, {0, 0}, {0, 0, 0}, {0, 0x80, 0, 0}, {0, 0, 0, 0, 0, 0}, {0, 0x02, 0, 0}, {0, 0x04, 0, 0}, {0, 0x08, 0, 0, 0}, {0, 0x10, 0, 0},
	{0xd5, 0, 0, 0}, {0xff, 0, 0, 0, 0}, {0x01, 0, 0, 0},
}

func (b *bmc) status() []byte {
	a := b.device.Read()
	switch {
	case a.Garbage > 0:
		return offLike[a.Garbage%len(offLike)]
	case a.Failed:
		return []byte{0xc3, 0, 0, 0}
	}
	switch a.State {
	case powerctl.Off:
		return []byte{0, b.policy << 5, 0, 0, 0}
	case powerctl.On:
		return []byte{0, b.policy<<5 | 1, 0, 0, 0}
	case powerctl.Fault:
		return []byte{0, 0x08, 0, 0, 0}
	case powerctl.Pending:
		return []byte{codeBusy}
	}
	return []byte{0xce}
}

// simFRU returns an inventory whose board and product areas have serial numbers.
func simFRU(serial string) []byte {
	area := func(start []byte, fields ...string) []byte {
		for _, f := range fields {
			start = append(append(start, 0xc0|byte(len(f))), f...)
		}
		start = append(start, 0xc1)
		for len(start)%8 != 7 {
			start = append(start, 0)
		}
		start[1] = byte((len(start) + 1) / 8)
		return append(start, checksum(start))
	}
	board := area([]byte{1, 0, 0, 0, 0, 0}, "Maker", "Board", "BOARD-SN", "Part")
	product := area([]byte{1, 0, 0}, "Maker", "A server with a long name", "Model", "v1", serial)
	common := []byte{1, 0, 0, 1, byte(1 + len(board)/8), 0, 0}
	return append(append(append(common, checksum(common)), board...), product...)
}
