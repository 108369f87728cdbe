package snmp

import (
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/gosnmp/gosnmp"
	"github.com/stretchr/testify/require"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

const (
	community = "c0mmunity"
	authPass  = "auth-passphrase"
	privPass  = "priv-passphrase"
	engineID  = "\x80\x00\x1f\x88\x04plugpull"
)

func testUser() User {
	return User{Name: "tester", Auth: "sha", AuthPass: powerctl.NewSecret(authPass), Priv: "aes", PrivPass: powerctl.NewSecret(privPass)}
}

// agent is a simulated device on UDP that speaks all three versions.
type agent struct {
	conn *net.UDPConn
	spec spec
	d    *powertest.Device

	mu     sync.Mutex
	static map[string]gosnmp.SnmpPDU
	sets   []write  // every SET that arrived, in order
	gets   int      // packets that only read
	wrong  []write  // SETs that a real device would do something else with
	first  []byte   // the first reply that was sent, for replays
	port   []uint16 // the source port of each request
	// tamper changes a reply before it is encoded; false drops it.
	tamper func(req, reply *gosnmp.SnmpPacket) bool
	// send replaces what goes out for one request.
	send func(req *gosnmp.SnmpPacket, out []byte) [][]byte
}

// write is one INTEGER in a SET.
type write struct {
	oid string
	n   int
}

func startAgent(t *testing.T, sp spec) *agent {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	a := &agent{conn: conn, spec: sp, d: powertest.NewDevice(), static: map[string]gosnmp.SnmpPDU{}}
	a.put(sysObjectID, gosnmp.ObjectIdentifier, sp.object)
	a.put(sp.name, gosnmp.OctetString, "db1 psu a")
	if sp.serial != "" {
		a.put(sp.serial, gosnmp.OctetString, "ZA4711")
	}
	done := make(chan struct{})
	go func() { defer close(done); a.serve() }()
	t.Cleanup(func() {
		conn.Close()
		<-done
		require.Empty(t, a.wrong, "written to something else than the command")
	})
	return a
}

func (a *agent) put(oid string, kind gosnmp.Asn1BER, v any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.static[oid] = gosnmp.SnmpPDU{Name: oid, Type: kind, Value: v}
}

func (a *agent) address() string { return a.conn.LocalAddr().String() }

// onReply and onSend install what goes wrong from now on.
func (a *agent) onReply(f func(req, reply *gosnmp.SnmpPacket) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tamper = f
}

func (a *agent) onSend(f func(req *gosnmp.SnmpPacket, out []byte) [][]byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send = f
}

func (a *agent) writes() []write {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.sets)
}

func (a *agent) reads() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gets
}

func (a *agent) serve() {
	buf := make([]byte, 65535)
	for {
		n, from, err := a.conn.ReadFromUDP(buf)
		if err != nil {
			return
		}
		for _, out := range a.answer(slices.Clone(buf[:n]), from) {
			_, _ = a.conn.WriteToUDP(out, from)
		}
	}
}

func agentUSM() *gosnmp.UsmSecurityParameters {
	return &gosnmp.UsmSecurityParameters{
		UserName:               "tester",
		AuthenticationProtocol: gosnmp.SHA, AuthenticationPassphrase: authPass,
		PrivacyProtocol: gosnmp.AES, PrivacyPassphrase: privPass,
	}
}

func (a *agent) answer(in []byte, from *net.UDPAddr) [][]byte {
	asked := slices.Clone(in) // the library decrypts in place
	decoder := &gosnmp.GoSNMP{
		Version: gosnmp.Version3, SecurityModel: gosnmp.UserSecurityModel,
		MsgFlags: gosnmp.AuthPriv, SecurityParameters: agentUSM(),
	}
	req, err := decoder.SnmpDecodePacket(in)
	if err != nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.port = append(a.port, uint16(from.Port))
	reply := &gosnmp.SnmpPacket{
		Version: req.Version, Community: req.Community, PDUType: gosnmp.GetResponse,
		RequestID: req.RequestID, MsgID: req.MsgID, SecurityModel: req.SecurityModel,
		ContextEngineID: engineID, ContextName: req.ContextName, MsgMaxSize: 65507,
	}
	switch {
	case req.Version == gosnmp.Version3 && req.MsgFlags&gosnmp.AuthPriv == 0:
		a.discovery(reply)
	case req.Version != gosnmp.Version3 && req.Community != community, !a.handle(req, reply):
		return nil
	}
	if a.tamper != nil && !a.tamper(req, reply) {
		return nil
	}
	out, err := seal(reply, engineID)
	if err != nil {
		panic(err)
	}
	if a.first == nil && reply.PDUType == gosnmp.GetResponse {
		a.first = out
	}
	if a.send != nil {
		return a.send(req, out)
	}
	if req.PDUType == gosnmp.SetRequest || slices.ContainsFunc(req.Variables, func(v gosnmp.SnmpPDU) bool { return a.spec.tells(v.Name) }) {
		return a.d.Outgoing(asked, out)
	}
	return [][]byte{out}
}

// discovery tells the engine id (RFC 3414, section 4).
func (a *agent) discovery(reply *gosnmp.SnmpPacket) {
	reply.PDUType, reply.MsgFlags = gosnmp.Report, gosnmp.NoAuthNoPriv
	reply.Variables = []gosnmp.SnmpPDU{{Name: ".1.3.6.1.6.3.15.1.1.4.0", Type: gosnmp.Counter32, Value: uint32(1)}}
}

// seal encodes a reply, in version 3 authenticated and encrypted.
func seal(reply *gosnmp.SnmpPacket, engine string) ([]byte, error) {
	if reply.Version == gosnmp.Version3 {
		usm := agentUSM()
		usm.AuthoritativeEngineID, usm.AuthoritativeEngineBoots, usm.AuthoritativeEngineTime = engine, 1, 100
		reply.SecurityParameters = usm
		if reply.PDUType != gosnmp.Report {
			reply.MsgFlags = gosnmp.AuthPriv
			if err := usm.InitSecurityKeys(); err != nil {
				return nil, err
			}
			if err := usm.InitPacket(reply); err != nil {
				return nil, err
			}
		} else {
			usm.UserName = ""
		}
	}
	return reply.MarshalMsg()
}

// handle fills the reply in; false is silence.
func (a *agent) handle(req, reply *gosnmp.SnmpPacket) bool {
	reply.Variables = req.Variables
	switch req.PDUType {
	case gosnmp.GetRequest, gosnmp.GetNextRequest:
		a.gets++
		a.read(req, reply)
		return true
	case gosnmp.SetRequest:
		return a.write(req, reply)
	}
	return false
}

func (a *agent) read(req, reply *gosnmp.SnmpPacket) {
	if a.d.Other() {
		a.static[sysObjectID] = gosnmp.SnmpPDU{Name: sysObjectID, Type: gosnmp.ObjectIdentifier, Value: e + "9.9"}
	}
	live := a.spec.live(a.d, slices.ContainsFunc(req.Variables, func(v gosnmp.SnmpPDU) bool { return a.spec.tells(v.Name) }))
	if live == nil {
		reply.Error, reply.ErrorIndex = gosnmp.GenErr, 1
		return
	}
	all := map[string]gosnmp.SnmpPDU{}
	for oid, v := range a.static {
		all[oid] = v
	}
	for oid, v := range live {
		all[oid] = v
	}
	reply.Variables = make([]gosnmp.SnmpPDU, len(req.Variables))
	for i, v := range req.Variables {
		oid := v.Name
		if req.PDUType == gosnmp.GetNextRequest {
			oid = following(all, oid)
		}
		found, ok := all[oid]
		switch {
		case ok:
			reply.Variables[i] = found
		case req.Version == gosnmp.Version1:
			reply.Variables = req.Variables
			reply.Error, reply.ErrorIndex = gosnmp.NoSuchName, uint8(i+1)
			return
		case req.PDUType == gosnmp.GetNextRequest:
			reply.Variables[i] = gosnmp.SnmpPDU{Name: v.Name, Type: gosnmp.EndOfMibView}
		default:
			reply.Variables[i] = gosnmp.SnmpPDU{Name: v.Name, Type: gosnmp.NoSuchInstance}
		}
	}
}

func following(all map[string]gosnmp.SnmpPDU, after string) string {
	best := ""
	for oid := range all {
		if lessOID(after, oid) && (best == "" || lessOID(oid, best)) {
			best = oid
		}
	}
	return best
}

func (a *agent) write(req, reply *gosnmp.SnmpPacket) bool {
	for i, v := range req.Variables {
		n, _ := v.Value.(int)
		w := write{v.Name, n}
		a.sets = append(a.sets, w)
		var answer powertest.Answer
		switch {
		case v.Type != gosnmp.Integer || len(req.Variables) != 1:
			a.wrong = append(a.wrong, w)
		case w == a.spec.off:
			answer = a.d.Switch(powerctl.Off)
		case w == a.spec.on:
			answer = a.d.Switch(powerctl.On)
		case slices.Contains(a.spec.cancel, w):
		default:
			a.wrong = append(a.wrong, w)
			answer.Failed = true
		}
		if answer.Silent {
			return false
		}
		if answer.Failed {
			reply.Error, reply.ErrorIndex = gosnmp.GenErr, uint8(i+1)
		}
		if answer.Busy && req.Version != gosnmp.Version1 {
			reply.Error = gosnmp.ResourceUnavailable
		}
	}
	return true
}
