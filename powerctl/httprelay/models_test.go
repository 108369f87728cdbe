package httprelay

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"plugpull/powerctl"
)

// model is a simulated family. It knows one outlet, the second where there are several.
type model struct {
	profile   string
	outlet    int
	auth      Auth
	algorithm string
	off, on   string // as they stand in the answer
	handle    func(s *sim, r *http.Request, body string) reaction
}

func models() []model {
	return []model{
		{"shelly-gen1", 2, Basic, "", "false", "true", shelly1},
		{"shelly-gen2", 2, Digest, "SHA-256", "false", "true", shelly2},
		{"tasmota", 2, Query, "", `"OFF"`, `"ON"`, func(s *sim, r *http.Request, _ string) reaction { return tasmota(s, r, "POWER2") }},
		{"tasmota-single", 1, Query, "", `"OFF"`, `"ON"`, func(s *sim, r *http.Request, _ string) reaction { return tasmota(s, r, "POWER") }},
		{"netio", 2, Basic, "", "0", "1", netio},
		{"digital-loggers", 2, Digest, "MD5", "false", "true", loggers},
		{"gude", 2, Basic, "", "0", "1", gude},
	}
}

func named(profile string) model {
	for _, m := range models() {
		if m.profile == profile {
			return m
		}
	}
	panic(profile)
}

// ordered is a command, if it is one of these two, and something unwanted otherwise.
func ordered(got, off, on string) powerctl.State {
	switch got {
	case off:
		return powerctl.Off
	case on:
		return powerctl.On
	}
	return powerctl.Fault
}

func shelly1(s *sim, r *http.Request, body string) reaction {
	status := telling(`{"ison":STATE,"has_timer":%v,"timer_started":0,"timer_duration":0,"overpower":false,"source":"http"}`, s.is("has_timer", false))
	switch {
	case r.URL.Path == "/relay/1" && r.Method == http.MethodGet && r.URL.RawQuery == "":
		return reaction{render: status}
	case strings.HasPrefix(r.URL.Path, "/relay/"):
		return reaction{ordered(r.URL.RequestURI()+" "+body, "/relay/1 turn=off", "/relay/1 turn=on"), status}
	case r.URL.Path == "/settings":
		return plain(map[string]any{
			"device": map[string]any{"type": "SHSW-25", "mac": s.serial(), "num_outputs": 2},
			"login":  map[string]any{"enabled": true, "username": simUser, "password": simPassword},
			"relays": []any{map[string]any{"name": "other"}, map[string]any{
				"name": s.is("name", simName), "auto_on": s.is("auto_on", 0.0), "auto_off": s.is("auto_off", 0.0),
				"schedule": s.is("schedule", false), "default_state": s.is("default_state", "off"),
			}},
		})
	}
	return reaction{}
}

func shelly2(s *sim, r *http.Request, body string) reaction {
	timer := ""
	if d := s.is("timer_duration", nil); d != nil {
		timer = fmt.Sprintf(`,"timer_started_at":1626942399.36,"timer_duration":%v`, d)
	}
	id := s.is("id", 1)
	switch r.URL.RequestURI() {
	case "/rpc/Switch.GetStatus?id=1":
		return reaction{render: telling(`{"id":%v,"source":"WS_in","output":STATE%s,"temperature":{"tC":53.4}}`, id, timer)}
	case "/rpc/Switch.GetConfig?id=1":
		return plain(map[string]any{"id": 1, "name": s.is("name", simName), "auto_on": s.is("auto_on", false), "auto_off": s.is("auto_off", false), "initial_state": s.is("initial_state", "off")})
	case "/rpc/Shelly.GetDeviceInfo":
		return plain(map[string]any{"id": simRealm, "mac": s.serial(), "gen": 2, "auth_en": true})
	case "/rpc/Schedule.List":
		return plain(map[string]any{"jobs": s.is("jobs", []any{}), "rev": 3})
	case "/rpc/Script.List":
		return plain(map[string]any{"scripts": s.is("scripts", []any{map[string]any{"id": 1, "enable": true, "running": false}})})
	case "/rpc":
		const frame = `{"id":1,"src":"plugpull","method":"Switch.Set","params":{"id":1,"on":%t}}`
		return reaction{ordered(body, fmt.Sprintf(frame, false), fmt.Sprintf(frame, true)), func(string) (int, string) {
			return http.StatusOK, `{"id":1,"src":"shellyplus2pm-e09806a9e103","dst":"plugpull","result":{"was_on":true}}`
		}}
	}
	return reaction{}
}

func tasmota(s *sim, r *http.Request, key string) reaction {
	q := r.URL.Query()
	if r.URL.Path != "/cm" || r.Method != http.MethodGet || len(q["cmnd"]) != 1 {
		return reaction{}
	}
	n := fmt.Sprint(s.outlet)
	cmnd := q.Get("cmnd")
	switch cmnd {
	case "Status 11":
		return reaction{render: telling(`{"StatusSTS":{"Time":"2021-10-17T17:27:21","%s":STATE,"Wifi":{"AP":1}}}`, s.is("key", key))}
	case "Status 5":
		return plain(map[string]any{"StatusNET": map[string]any{"Hostname": "tasmota", "Mac": s.serial()}})
	case "FriendlyName" + n:
		return plain(map[string]any{"FriendlyName" + n: s.is("name", simName)})
	case "PulseTime" + n:
		return plain(map[string]any{"PulseTime" + n: map[string]any{"Set": s.is("PulseTime", 0), "Remaining": 0}})
	case "Timers":
		return plain(map[string]any{"Timers": s.is("Timers", "OFF"), "Timers1": map[string]any{"Timer1": map[string]any{"Enable": 0}}})
	case "Rule1", "Rule2", "Rule3":
		return plain(map[string]any{cmnd: map[string]any{"State": s.is(cmnd, "OFF"), "Once": "OFF", "Rules": ""}})
	case "PowerOnState":
		return plain(map[string]any{"PowerOnState": s.is("PowerOnState", 0)})
	}
	return reaction{ordered(cmnd, "Power"+n+" OFF", "Power"+n+" ON"), telling(`{"%s":STATE}`, key)}
}

func netio(s *sim, r *http.Request, body string) reaction {
	if r.URL.RequestURI() != "/netio.json" {
		return reaction{}
	}
	whole := telling(`{"Agent":{"Model":"PowerPDU 4C","JSONVer":"2.1","SerialNumber":"%v","NumOutputs":2},"GlobalMeasure":{"Voltage":240.7},`+
		`"Outputs":[{"ID":1,"Name":"output_1","State":0,"Action":6,"Delay":5000},{"ID":%v,"Name":"%v","State":STATE,"Action":6,"Delay":5000}]}`,
		s.serial(), s.is("id", 2), s.is("name", simName))
	if r.Method == http.MethodGet {
		return reaction{render: whole}
	}
	return reaction{ordered(r.Method+" "+body, `POST {"Outputs":[{"ID":2,"Action":0}]}`, `POST {"Outputs":[{"ID":2,"Action":1}]}`), whole}
}

func loggers(s *sim, r *http.Request, body string) reaction {
	if r.Header.Get("Accept") != "application/json" || r.Header.Get("X-CSRF") != "x" {
		return reaction{}
	}
	switch r.Method + " " + r.URL.RequestURI() {
	case "GET /restapi/relay/outlets/1/physical_state/":
		return reaction{render: telling("STATE")}
	case "GET /restapi/config/serial/":
		return plain(s.serial())
	case "GET /restapi/relay/outlets/1/name/":
		return plain(s.is("name", simName))
	case "GET /restapi/relay/outlets/1/locked/":
		return plain(s.is("locked", false))
	case "PUT /restapi/relay/outlets/1/state/":
		return reaction{ordered(body, "value=false", "value=true"), func(string) (int, string) { return http.StatusNoContent, "true" }}
	}
	return reaction{}
}

func gude(s *sim, r *http.Request, _ string) reaction {
	if r.URL.Path != "/status.json" || r.Method != http.MethodGet {
		return reaction{}
	}
	outputs := telling(`{"outputs":[{"name":"Power Port","state":0,"type":1,"batch":[1,0,0,0,0,0],"wdog":[1,3,null,32]},`+
		`{"name":"%v","state":STATE,"type":1,"batch":[%v,0,0,0,0,0],"wdog":[%v,3,null,32]}]}`, s.is("name", simName), s.is("batch", 0), s.is("wdog", 0))
	q, _ := url.ParseQuery(r.URL.RawQuery)
	switch {
	case q.Has("cmd"):
		return reaction{ordered(r.URL.RawQuery, "components=1&cmd=1&p=2&s=0", "components=1&cmd=1&p=2&s=1"), outputs}
	case q.Get("components") == "1":
		return reaction{render: outputs}
	case q.Get("components") == "8":
		return plain(map[string]any{"ethernet": map[string]any{"mac": s.serial()}})
	}
	return reaction{}
}

// serial is what the device says it is.
func (s *sim) serial() any {
	if s.device.Other() {
		return "another"
	}
	return s.is("serial", simSerial)
}
