package ipmi

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// CipherSuite is an RMCP+ cipher suite (IPMI 2.0, table 22-20).
type CipherSuite uint8

// The suites that authenticate, protect and encrypt every packet. The others,
// above all suite 0, are left out on purpose.
const (
	// SHA1 is suite 3: RAKP-HMAC-SHA1, HMAC-SHA1-96, AES-CBC-128. Every BMC has it.
	SHA1 CipherSuite = 3
	// SHA256 is suite 17: RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128.
	SHA256 CipherSuite = 17
)

// suite is what a cipher suite means on the wire.
type suite struct {
	auth, integrity, confidentiality byte // algorithm numbers, tables 13-17 to 13-19
	hash                             func() hash.Hash
	codeLen                          int // bytes of a packet's authentication code
}

func suiteOf(c CipherSuite) (suite, bool) {
	switch c {
	case SHA1:
		return suite{auth: 1, integrity: 1, confidentiality: 1, hash: sha1.New, codeLen: 12}, true
	case SHA256:
		return suite{auth: 3, integrity: 4, confidentiality: 1, hash: sha256.New, codeLen: 16}, true
	}
	return suite{}, false
}

func (s suite) mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(s.hash, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// rakp is what both sides of a session know once names and random numbers have
// been exchanged (IPMI 2.0, 13.20 to 13.32).
type rakp struct {
	suite
	consoleID, bmcID     uint32
	consoleRand, bmcRand [16]byte
	guid                 [16]byte
	role                 byte
	user                 string
	userKey, bmcKey      []byte // Kuid and Kg, both of keyLen bytes
}

// keyLen is the length of a password or BMC key on the wire, padded with zeros.
const keyLen = 20

func padKey(text string) []byte { return append([]byte(text), make([]byte, keyLen-len(text))...) }

func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

func (r rakp) name() []byte { return append([]byte{r.role, byte(len(r.user))}, r.user...) }

// code2 proves to the console that the BMC knows the password.
func (r rakp) code2() []byte {
	return r.mac(r.userKey, le32(r.consoleID), le32(r.bmcID), r.consoleRand[:], r.bmcRand[:], r.guid[:], r.name())
}

// code3 proves to the BMC that the console knows the password.
func (r rakp) code3() []byte { return r.mac(r.userKey, r.bmcRand[:], le32(r.consoleID), r.name()) }

// code4 proves that both have the same session key.
func (r rakp) code4() []byte {
	return r.mac(r.sessionKey(), r.consoleRand[:], le32(r.bmcID), r.guid[:])[:r.codeLen]
}

func (r rakp) sessionKey() []byte { return r.mac(r.bmcKey, r.consoleRand[:], r.bmcRand[:], r.name()) }

func (r rakp) keys() keys {
	sik := r.sessionKey()
	constant := func(b byte) []byte {
		c := make([]byte, 20)
		for i := range c {
			c[i] = b
		}
		return c
	}
	return keys{suite: r.suite, k1: r.mac(sik, constant(1)), k2: r.mac(sik, constant(2))[:aes.BlockSize]}
}

// keys protect the packets of one session.
type keys struct {
	suite
	k1, k2 []byte
}

// seal encrypts and authenticates one message (IPMI 2.0, 13.6, 13.28.4, 13.29).
func (k keys) seal(session, sequence uint32, message []byte) []byte {
	plain := append([]byte(nil), message...)
	pad := (2*aes.BlockSize - 1 - len(plain)%aes.BlockSize) % aes.BlockSize
	for i := range pad {
		plain = append(plain, byte(i+1))
	}
	plain = append(plain, byte(pad))
	iv := make([]byte, aes.BlockSize)
	_, _ = rand.Read(iv) // never fails
	cipher.NewCBCEncrypter(k.block(), iv).CryptBlocks(plain, plain)

	p := header(payloadIPMI|encrypted|authenticated, session, sequence, append(iv, plain...))
	tail := 0
	for (len(p)-len(rmcpHeader)+tail+2)%4 != 0 {
		p = append(p, 0xff)
		tail++
	}
	p = append(p, byte(tail), nextHeader)
	return append(p, k.mac(k.k1, p[len(rmcpHeader):])[:k.codeLen]...)
}

// unseal returns the message of a packet that seal made, for the session, and
// false for everything else.
func (k keys) unseal(packet []byte, session uint32) ([]byte, bool) {
	h, ok := parseHeader(packet)
	if !ok || h.kind != payloadIPMI|encrypted|authenticated || h.session != session || len(h.rest) < 2+k.codeLen {
		return nil, false
	}
	signed := packet[len(rmcpHeader) : len(packet)-k.codeLen]
	if !hmac.Equal(k.mac(k.k1, signed)[:k.codeLen], packet[len(packet)-k.codeLen:]) {
		return nil, false
	}
	b := h.payload
	if len(b) < 2*aes.BlockSize || len(b)%aes.BlockSize != 0 {
		return nil, false
	}
	plain := make([]byte, len(b)-aes.BlockSize)
	cipher.NewCBCDecrypter(k.block(), b[:aes.BlockSize]).CryptBlocks(plain, b[aes.BlockSize:])
	end := len(plain) - 1 - int(plain[len(plain)-1])
	if end < 0 {
		return nil, false
	}
	return plain[:end], true
}

func (k keys) block() cipher.Block {
	b, err := aes.NewCipher(k.k2)
	if err != nil {
		panic("aes: " + err.Error()) // the key has 16 bytes
	}
	return b
}
