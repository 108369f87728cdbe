package redfish

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"plugpull/powerctl"
	"plugpull/powerctl/powertest"
)

const (
	simUser     = "plug"
	simPassword = "s3cret-of-the-test"
	simUUID     = "1f2e3d4c-5b6a-7988-97a6-b5c4d3e2f101"
	simSerial   = "SN-4711"
	simLabel    = "rack 3 server 7"
	systemPath  = "/redfish/v1/Systems/1"
	outletPath  = "/redfish/v1/PowerEquipment/RackPDUs/1/Outlets/A7"
	sessions    = "/redfish/v1/SessionService/Sessions"
)

// service is a simulated Redfish service with the powertest device behind both
// its system and its PDU's outlet.
type service struct {
	*httptest.Server
	device *powertest.Device

	mu sync.Mutex
	// What a test may change while the service runs.
	failure  failure        // how what fails fails
	patch    map[string]any // replaces properties of the system, the PDU and the outlet; nil removes one
	reset    map[string]any // replaces properties of the action
	garbage  string         // instead of a resource
	accepts  int            // the status of a command that succeeds
	conflict bool           // 409 where there is nothing to do
	noBasic  bool
	location string          // before the path of a new session
	open     map[string]bool // sessions
	opened   int
	requests []string
	secrets  int // requests that carried the password or a token
}

// failure is a way in which an answer fails.
type failure string

const (
	busy      failure = "503"
	reset     failure = "connection reset"
	truncated failure = "truncated JSON"
	short     failure = "shorter than announced"
	redirect  failure = "redirect 307"
	moved     failure = "redirect 302"
	page      failure = "a web page"
	endless   failure = "without end"
)

func startService(t testing.TB) *service {
	s := &service{
		device: powertest.NewDevice(), failure: busy, accepts: http.StatusNoContent,
		patch: map[string]any{}, reset: map[string]any{}, open: map[string]bool{},
	}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that refuse the certificate
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *service) fingerprint() string {
	sum := sha256.Sum256(s.Certificate().Raw)
	return hex.EncodeToString(sum[:])
}

// change changes what the service is while it runs.
func (s *service) change(f func(*service)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	if r.Header.Get("Authorization")+r.Header.Get("X-Auth-Token") != "" {
		s.secrets++
	}
	path := strings.TrimRight(r.URL.Path, "/")
	switch {
	case path == "/redfish":
		write(w, http.StatusOK, map[string]any{"v1": "/redfish/v1/"})
		return
	case path == "/redfish/v1":
		write(w, http.StatusOK, map[string]any{
			"@odata.type": "#ServiceRoot.v1_9_0.ServiceRoot", "@odata.id": "/redfish/v1/", "RedfishVersion": "1.9.0",
			"Systems": id("/redfish/v1/Systems"), "Links": map[string]any{"Sessions": id(sessions)},
		})
		return
	case path == sessions && r.Method == http.MethodPost:
		s.login(w, r)
		return
	}
	if !s.authenticated(r) {
		message(w, http.StatusUnauthorized, "Base.1.8.AccessDenied")
		return
	}
	switch {
	case strings.HasPrefix(path, sessions+"/") && r.Method == http.MethodDelete:
		delete(s.open, r.Header.Get("X-Auth-Token"))
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost:
		s.post(w, r, path)
	case path == systemPath || path == outletPath:
		s.read(w, r, path)
	default:
		s.others(w, path)
	}
}

func id(path string) map[string]any { return map[string]any{"@odata.id": path} }

func write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func message(w http.ResponseWriter, code int, id string) {
	write(w, code, map[string]any{"error": map[string]any{
		"code": "Base.1.8.GeneralError", "message": "you sent " + simPassword,
		"@Message.ExtendedInfo": []any{map[string]any{"MessageId": id, "Message": "you sent " + simPassword}},
	}})
}

func (s *service) login(w http.ResponseWriter, r *http.Request) {
	var in struct{ UserName, Password string }
	if json.NewDecoder(r.Body).Decode(&in) != nil || in.UserName != simUser || in.Password != simPassword {
		message(w, http.StatusUnauthorized, "Base.1.8.ResourceAtUriUnauthorized")
		return
	}
	s.opened++
	token := fmt.Sprint("token-", s.opened)
	s.open[token] = true
	w.Header().Set("X-Auth-Token", token)
	w.Header().Set("Location", fmt.Sprintf("%s%s/%d", s.location, sessions, s.opened))
	write(w, http.StatusCreated, map[string]any{
		"@odata.id": fmt.Sprintf("%s/%d", sessions, s.opened), "@odata.type": "#Session.v1_3_0.Session",
		"Id": fmt.Sprint(s.opened), "Name": "Session", "UserName": simUser,
	})
}

func (s *service) authenticated(r *http.Request) bool {
	user, password, ok := r.BasicAuth()
	return s.open[r.Header.Get("X-Auth-Token")] || ok && !s.noBasic && user == simUser && password == simPassword
}

func (s *service) others(w http.ResponseWriter, path string) {
	switch path {
	case "/redfish/v1/Systems":
		write(w, http.StatusOK, map[string]any{"Name": "Systems", "Members": []any{id(systemPath)}, "Members@odata.count": 1})
	case systemPath + "/ResetActionInfo":
		write(w, http.StatusOK, map[string]any{"Id": "ResetAction", "Parameters": []any{
			map[string]any{"Name": "Other", "AllowableValues": []string{"Nothing"}},
			map[string]any{"Name": "ResetType", "AllowableValues": []string{"On", "ForceOff"}},
		}})
	case "/redfish/v1/PowerEquipment/RackPDUs/1":
		write(w, http.StatusOK, s.patched(map[string]any{
			"@odata.type": "#PowerDistribution.v1_2_0.PowerDistribution", "UUID": simUUID, "SerialNumber": simSerial, "Model": "PDU 24",
		}))
	default:
		message(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
	}
}

func (s *service) patched(m map[string]any) map[string]any {
	maps.Copy(m, s.patch)
	if _, ok := m["UUID"].(string); ok && s.device.Other() {
		m["UUID"] = "2" + simUUID[1:]
	}
	maps.DeleteFunc(m, func(_ string, v any) bool { return v == nil })
	return m
}

func (s *service) resource(path string, state any) map[string]any {
	action := map[string]any{"target": path + "/Actions/ComputerSystem.Reset", "ResetType@Redfish.AllowableValues": []string{"On", "ForceOff", "ForceRestart", "PowerCycle"}}
	m := map[string]any{
		"@odata.type": "#ComputerSystem.v1_13_0.ComputerSystem", "@odata.id": path, "Id": "1", "UUID": strings.ToUpper(simUUID), "SerialNumber": simSerial,
		"Manufacturer": "Maker", "Model": "Server", "PowerState": state, "PowerRestorePolicy": "AlwaysOff", "Status": map[string]any{"State": "Enabled"},
	}
	name := "#ComputerSystem.Reset"
	if path == outletPath {
		name = "#Outlet.PowerControl"
		action = map[string]any{"target": path + "/Actions/Outlet.PowerControl", "PowerState@Redfish.AllowableValues": []string{"On", "Off", "PowerCycle"}}
		m = map[string]any{
			"@odata.type": "#Outlet.v1_4_0.Outlet", "@odata.id": path, "Id": "A7", "Name": "Outlet A7", "UserLabel": simLabel,
			"PowerState": state, "PowerStateInTransition": false, "PowerControlLocked": false, "PowerRestorePolicy": "AlwaysOff",
		}
	}
	maps.Copy(action, s.reset)
	maps.DeleteFunc(action, func(_ string, v any) bool { return v == nil })
	m["Actions"] = map[string]any{name: action}
	return s.patched(m)
}

// nonsense must never be taken for off. %s is the type.
var nonsense = []string{
	`{"@odata.type":"%s","PowerState":"off"}`, `{"@odata.type":"%s","PowerState":null}`, `{"@odata.type":"%s"}`,
	`{"@odata.type":"%s","powerstate":"Off"}`, `{"@odata.type":"%s","PowerState":"On","PowerState":"Off"}`,
	`{"@odata.type":"%s","PowerState":["Off"]}`, `{"@odata.type":"%s","PowerState":"Off "}`, `{"@odata.type":"%s","PowerState":0}`,
	`{"@odata.type":"#Chassis.v1_0_0.Chassis","PowerState":"Off"}`, `{"PowerState":"Off"}`, `{"@odata.type":"%s","PowerState":"Off"`,
	`{"@odata.type":"%s","PowerState":"Off"}{"PowerState":"On"}`, `[{"@odata.type":"%s","PowerState":"Off"}]`, ``, `Off`, `"Off"`, `null`,
	`{"@odata.type":"%s","PowerState":"Off","PowerStateInTransition":true}`, `{"@odata.type":"%s","PowerState":"Off","PowerStateInTransition":"true"}`,
	`{"@odata.type":"%s","PowerState":"Off","PowerControlLocked":true}`, `{"@odata.type":"%s","PowerState":"Off","Status":{"State":"Absent"}}`,
	`{"@odata.type":"%s","PowerState":"Paused"}`, `<html>Off</html>`,
}

func (s *service) read(w http.ResponseWriter, r *http.Request, path string) {
	a := s.device.Read()
	whole := s.resource(path, a.State.String())
	kind := strings.SplitAfter(whole["@odata.type"].(string), ".")[0]
	switch {
	case s.garbage != "":
		_, _ = io.WriteString(w, s.garbage)
		return
	case a.Garbage > 0:
		// What precedes the command must be readable, or nothing would be sent.
		if len(s.device.Commands()) > 0 {
			_, _ = io.WriteString(w, strings.ReplaceAll(nonsense[a.Garbage%len(nonsense)], "%s", kind))
			return
		}
	case a.Failed && len(s.device.Commands()) > 0:
		s.fail(w, r, s.failure, s.resource(path, "Off"))
		return
	}
	whole["PowerState"] = map[powerctl.State]any{
		powerctl.On: "On", powerctl.Off: "Off", powerctl.Pending: "PoweringOff", powerctl.Fault: "Fault",
	}[a.State]
	maps.Copy(whole, s.patch)
	write(w, http.StatusOK, whole)
}

func (s *service) post(w http.ResponseWriter, r *http.Request, path string) {
	var in map[string]string
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		message(w, http.StatusBadRequest, "Base.1.8.MalformedJSON")
		return
	}
	want := powerctl.Fault // a command that the suite does not count is worth a failure
	switch fmt.Sprint(path, in) {
	case systemPath + "/Actions/ComputerSystem.Resetmap[ResetType:ForceOff]", outletPath + "/Actions/Outlet.PowerControlmap[PowerState:Off]":
		want = powerctl.Off
	case systemPath + "/Actions/ComputerSystem.Resetmap[ResetType:On]", outletPath + "/Actions/Outlet.PowerControlmap[PowerState:On]":
		want = powerctl.On
	}
	if s.conflict && s.device.Contacts() == want {
		message(w, http.StatusConflict, "Base.1.8.NoOperation")
		return
	}
	a := s.device.Switch(want)
	switch {
	case a.Silent:
		s.mu.Unlock() // other requests go on
		<-r.Context().Done()
		s.mu.Lock()
	case a.Busy:
		s.fail(w, r, busy, nil)
	case a.Reset:
		s.fail(w, r, reset, nil)
	case a.Failed:
		s.fail(w, r, s.failure, map[string]any{"done": true})
	default:
		w.WriteHeader(s.accepts)
	}
}

func (s *service) fail(w http.ResponseWriter, r *http.Request, how failure, v any) {
	whole, _ := json.Marshal(v)
	switch how {
	case busy:
		w.Header().Set("Retry-After", "1")
		message(w, http.StatusServiceUnavailable, "Base.1.8.ServiceTemporarilyUnavailable")
	case reset:
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		if tcp, ok := conn.(interface{ NetConn() net.Conn }); ok {
			_ = tcp.NetConn().(*net.TCPConn).SetLinger(0)
			_ = tcp.NetConn().Close()
		}
	case truncated:
		_, _ = w.Write(whole[:len(whole)-1])
	case short:
		w.Header().Set("Content-Length", fmt.Sprint(len(whole)+10))
		_, _ = w.Write(whole)
	case redirect, moved:
		code := map[failure]int{redirect: http.StatusTemporaryRedirect, moved: http.StatusFound}[how]
		http.Redirect(w, r, r.URL.Path, code)
	case page:
		_, _ = io.WriteString(w, "<html>Power: Off. Please log in.</html>")
	case endless:
		_, _ = w.Write(slices.Repeat([]byte{' '}, maxBody))
		_, _ = w.Write(whole)
	}
}
