package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// constants returns the names of the constants of a type, such as "fault.Kind", read from the
// source of its package below testbroker.
func constants(t *testing.T, of string) []string {
	pkg, of, _ := strings.Cut(of, ".")
	files, err := filepath.Glob("../../testbroker/" + pkg + "/*.go")
	require.NoError(t, err)
	var all []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			in := false // the type of the group, stated by its first constant
			for _, s := range group.Specs {
				spec := s.(*ast.ValueSpec)
				if spec.Type != nil || spec.Values != nil {
					name, _ := spec.Type.(*ast.Ident)
					in = name != nil && name.Name == of
				}
				if in {
					all = append(all, spec.Names[0].Name)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestEveryKindHasItsName checks that the tables have every kind of fault, and every value of the
// enumerations in faults.
func TestEveryKindHasItsName(t *testing.T) {
	kinds := slices.Collect(maps.Keys(faultKinds()))
	require.Equal(t, constants(t, "fault.Kind"), slices.Sorted(slices.Values(kinds)))
	for of, n := range map[string]int{"fault.RouteKind": len(routeKinds), "fault.LinkKind": len(linkKinds),
		"hubdata.TwinOperation": len(twinOperations),
		"fault.BlobOperation":   len(blobOperations)} {
		require.Len(t, constants(t, of), n, of)
	}
}

// samples are a valid and an invalid value of each field.
var samples = map[string][2]string{
	"device": {`"dev-1"`, `"dev-9"`}, "after": {`2`, `-1`}, "times": {`3`, `-2`}, "probability": {`0.5`, `1.5`},
	"for":  {`"10ms"`, `"10"`},
	"code": {`2`, `0`}, "serverReference": {`"host:1883"`, `7`}, "condition": {`"amqp:not-found"`, `7`},
	"description": {`"text"`, `{}`},
	"status":      {`429`, `200`},
	"statuses":    {`[0,500]`, `[100]`},
	"errorCode":   {`500001`, `5`}, "retryAfter": {`"2s"`, `2`}, "retryAfterDate": {`true`, `1`},
	"route": {`"upload-done"`,
		`"uploaddone"`},
	"blob": {`"put-block-list"`, `""`},
	"skew": {`"-1h"`, `"h"`}, "operation": {`"patch"`, `"PATCH"`}, "method": {`"reboot"`, `null`},
	"message":           {`"exec"`, `1`},
	"link":              {`"twin-sender"`, `"sender"`},
	"unclosed":          {`true`, `"yes"`},
	"undeliverableHere": {`true`, `0`}, "delay": {`"1ms"`, `"-1ms"`}, "rate": {`2.5`, `0`}, "limit": {`7`, `0.5`},
	"acceptConnects": {`true`, `null`}, "text": {`"soon"`, `7`}, "bytesBase64": {`"AAE="`, `"AAE"`},
}

// wrongField returns the field for which a fault is refused.
func wrongField(t *testing.T, body string) string {
	_, problem := readFault([]byte(body))
	require.NotNil(t, problem, body)
	return problem.Field
}

// Each kind accepts all of its fields and no others. The refusal of an invalid value names the
// field.
func TestEveryKindWithItsFields(t *testing.T) {
	p := start(t, "-dps", "-mqtt", "off", "-amqp", "off", "-https", "off")
	kinds := p.good("GET", "/faults/kinds", "")["kinds"].([]any)
	require.Len(t, kinds, len(faultKinds()))
	for _, k := range kinds {
		kind := k.(map[string]any)["kind"].(string)
		require.NotEmpty(t, k.(map[string]any)["protocols"])
		base := fmt.Sprintf(`{"kind":%q`, kind)
		texts := fault.Wrongs(faultKinds()[kind])
		if texts != nil {
			base += fmt.Sprintf(`,"text":%q`, texts[0])
		}
		whole := base
		has := k.(map[string]any)["fields"].([]any)
		path := "/faults"
		if slices.Contains(dpsKinds(), faultKinds()[kind]) {
			require.Equal(t, "kind", p.refused(400, "POST", path, whole+"}").Field)
			path = "/dps/faults"
		}
		for name, v := range samples {
			if name == "device" && path == "/dps/faults" {
				v[1] = `7` // any text is a registration id
			}
			if name == "text" && texts != nil {
				continue // it is in each request
			}
			one := fmt.Sprintf(`%s,%q:%s}`, base, name, v[0])
			wrong := fmt.Sprintf(`%s,%q:%s}`, base, name, v[1])
			if !slices.Contains(has, any(name)) {
				require.Equal(t, name, wrongField(t, one), one)
				continue
			}
			whole += fmt.Sprintf(`,%q:%s`, name, v[0])
			if name == "device" {
				require.Equal(t, name, p.refused(400, "POST", path, wrong).Field, wrong)
				continue
			}
			require.Equal(t, name, strings.TrimSuffix(wrongField(t, wrong), "[0]"), wrong)
		}
		declared := p.good("POST", path, whole+"}")
		require.Equal(t, kind, declared["fault"].(map[string]any)["kind"])
		require.Len(t, declared["fault"], len(has)+1)
	}
	require.Len(t, p.good("GET", "/faults", "")["faults"], len(kinds))
	require.EqualValues(t, len(kinds), p.good("DELETE", "/faults", "")["removed"])
}

// All fields reach the hub's Fault.
func TestReadFault(t *testing.T) {
	for input, want := range map[string]fault.Fault{
		`{"kind":"RefuseConnect","device":"a/b","code":5,"after":1,"times":-1,"probability":0.25,"for":"1m",` +
			`"status":500,"errorCode":500001,"retryAfter":"3s","retryAfterDate":true,"condition":"c",` +
			`"description":"d"}`: {Kind: fault.RefuseConnect, Device: "a/b",
			Code: 5, After: 1, Times: -1, Probability: 0.25, For: time.Minute, Status: 500, ErrorCode: 500001,
			RetryAfter: 3 * time.Second, RetryAfterDate: true, Condition: "c", Description: "d"},
		`{"kind":"AnswerStatus","statuses":[500,0],"route":"blob","blob":"put-blob"}`: {Kind: fault.AnswerStatus,
			Statuses: []int{500, 0}, Route: fault.RouteBlob, Blob: fault.PutBlob},
		`{"kind":"WrongDate","skew":"-1h"}`: {Kind: fault.WrongDate, Skew: -time.Hour},
		`{"kind":"SlowTwin","operation":"get","delay":"1.5s"}`: {Kind: fault.SlowTwin,
			Operation: hubdata.TwinGet, Delay: 1500 * time.Millisecond},
		`{"kind":"SwallowMethod","method":"m"}`: {Kind: fault.SwallowMethod, Method: "m"},
		`{"kind":"DetachWhileIdle","link":"c2d","unclosed":true}`: {Kind: fault.DetachWhileIdle,
			Link: fault.LinkC2D, Unclosed: true},
		`{"kind":"ModifyMessage","undeliverableHere":true}`: {Kind: fault.ModifyMessage,
			UndeliverableHere: true},
		`{"kind":"Throttle","rate":0.5,"limit":3}`: {Kind: fault.Throttle, Rate: 0.5,
			Limit: 3},
		`{"kind":"Quota","limit":-1,"acceptConnects":true}`: {Kind: fault.Quota, Limit: -1,
			AcceptConnects: true},
		`{"kind":"GarbageOnConnect","bytesBase64":"AAE="}`: {Kind: fault.GarbageOnConnect,
			Bytes: []byte{0, 1}},
	} {
		got, problem := readFault([]byte(input))
		require.Nil(t, problem, input)
		require.Equal(t, want, got, input)
	}
}

func TestBadInput(t *testing.T) {
	p := start(t, "-device", "dev-1", "-device", "dev-1/cam", "-mqtt", "off", "-amqp", "off", "-https", "off")
	dev := "/devices/dev-1"
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"GET", "/nothing", "", 404, "path"},
		{"PATCH", "/faults", "", 404, "path"},
		{"GET", "/messages?form=1", "", 400, "form"},
		{"GET", "/messages?from=-1", "", 400, "from"},
		{"GET", "/messages?from=1&from=2", "", 400, "from"},
		{"GET", "/messages?from=", "", 400, "from"},
		{"GET", "/messages?limit=0", "", 400, "limit"},
		{"GET", "/messages?last=0", "", 400, "last"},
		{"GET", "/messages?body=-1", "", 400, "body"},
		{"POST", "/devices", "{}", 400, "id"},
		{"POST", "/devices", `{"id":"a b"}`, 400, "id"},
		{"POST", "/devices", `{"id":"dev-1"}`, 409, "id"},
		{"POST", "/devices", `{"id":"dev-9/cam"}`, 404, "id"},
		{"POST", "/devices", `{"id":"dev-9","primaryKey":"AA=="}`, 400, "primaryKey"},
		{"POST", "/devices", `{"id":"dev-9","modules":[{"id":"a"},{"id":"b c"}]}`, 400, "id"},
		{"GET", "/devices/dev-9/twin", "", 404, "device"},
		{"DELETE", "/devices/dev-9", "", 404, "device"},
		{"GET", "/messages?device=dev-9", "", 404, "device"},
		{"GET", "/messages/wait?within=5", "", 400, "within"},
		{"GET", "/messages/wait?within=11m", "", 400, "within"},
		{"GET", "/messages/wait?count=1.5", "", 400, "count"},
		{"GET", "/messages/wait?within=10ms", "", 504, ""},
		{"GET", "/devices/dev-9/twin", "", 404, "device"},
		{"GET", "/devices/dev-9/wait", "", 404, "device"},
		{"POST", "/devices/dev-9/c2d", "{}", 404, "device"},
		{"POST", "/devices/dev-1%2Fcam/disable", "", 400, "device"},
		{"POST", dev + "/reset", `{"hard":true}`, 400, "hard"},
		{"POST", dev + "/reset?hard=1", "", 400, "hard"},
		{"POST", "/reset", `[]`, 400, ""},
		{"POST", dev + "/c2d", `{`, 400, ""},
		{"POST", dev + "/c2d", `{} {}`, 400, ""},
		{"POST", dev + "/c2d", `null`, 400, ""},
		{"POST", dev + "/c2d", `{"body":{"on":true}}`, 400, "body"},
		{"POST", dev + "/c2d", `{"body":"a","bodyBase64":"YQ=="}`, 400, "bodyBase64"},
		{"POST", dev + "/c2d", `{"bodyBase64":"?"}`, 400, "bodyBase64"},
		{"POST", dev + "/c2d", `{"body":"` + strings.Repeat("x", 65<<10) + `"}`, 400, "body"},
		{"POST", dev + "/c2d", `{"body":"` + strings.Repeat("x", 1<<20) + `"}`, 413, ""},
		{"POST", dev + "/c2d", `{"messageId":"` + strings.Repeat("x", 129) + `"}`, 400, "messageId"},
		{"POST", dev + "/c2d", `{"properties":{"n":1}}`, 400, "properties.n"},
		{"POST", dev + "/c2d", `{"properties":{"n":{"a":"b"}}}`, 400, "properties.n"},
		{"POST", dev + "/c2d", `{"properties":{"":"1"}}`, 400, "properties"},
		{"POST", dev + "/c2d", `{"properties":["n"]}`, 400, "properties"},
		{"POST", dev + "/c2d", `{"expiry":"tomorrow"}`, 400, "expiry"},
		{"POST", dev + "/c2d", `{"ack":"some"}`, 400, "ack"},
		{"GET", dev + "/c2d/wait?state=done", "", 400, "state"},
		{"PATCH", dev + "/twin/desired", `[1]`, 400, "body"},
		{"PATCH", dev + "/twin/desired", ``, 400, "body"},
		{"PUT", dev + "/twin/desired", `{"a.b":1}`, 400, "body"},
		{"PATCH", dev + "/twin/tags", `7`, 400, "body"},
		{"POST", dev + "/twin/wait", `{}`, 400, "reported"},
		{"POST", dev + "/twin/wait", `{"reported":1}`, 400, "reported"},
		{"POST", dev + "/methods", `{}`, 400, "name"},
		{"POST", dev + "/methods", `{"name":"a b"}`, 400, "name"},
		{"POST", dev + "/methods", `{"name":"a/b"}`, 400, "name"},
		{"POST", dev + "/methods", `{"name":"a","payload":1,"payload":2}`, 400, "payload"},
		{"POST", dev + "/twin/wait", `{"desired":[]}`, 400, "desired"},
		{"POST", dev + "/methods", `{"name":"a","responseTimeout":"1h"}`, 400, "responseTimeout"},
		{"POST", dev + "/methods", `{"name":"a"}`, 404, ""},
		{"POST", "/faults", `{}`, 400, "kind"},
		{"POST", "/faults", `"DropConnect"`, 400, "body"},
		{"POST", "/faults", `{"kind":"Nothing"}`, 400, "kind"},
		{"POST", "/faults", `{"kind":1}`, 400, "kind"},
		{"POST", "/faults", `{"kind":"DropConnect","kind":"DropConnect"}`, 400, "kind"},
		{"POST", "/faults", `{"kind":"RefuseTwin","times":0}`, 400, "times"},
		{"POST", "/faults", `{"kind":"RefuseTwin","probability":0}`, 400, "probability"},
		{"POST", "/faults", `{"kind":"RefuseConnect","for":"10m"}`, 400, "for"},
		{"POST", "/faults", `{"kind":"Quota","limit":0}`, 400, "limit"},
		{"POST", "/faults", `{"kind":"DropConnect","colour":1}`, 400, "colour"},
		{"GET", "/faults/1", "", 404, "fault"},
		{"GET", "/faults/one/wait", "", 404, "fault"},
		{"DELETE", "/faults/1", "", 404, "fault"},
		{"GET", "/files/dev-1/a.txt", "", 404, "file"},
	} {
		require.Equal(t, c.field, p.refused(c.status, c.method, c.path, c.body).Field, "%s %s %.200s", c.method, c.path,
			c.body)
	}
	require.Contains(t, p.refused(400, "POST", "/faults", `{"kind":"dropconnect"}`).Fix, "DropConnect")
	require.Contains(t, p.refused(400, "POST", dev+"/methods", `{"name":"a/b"}`).Fix, "ASCII")
	require.Contains(t, p.refused(404, "POST", dev+"/methods", `{"name":"a"}`).Fix, "connectTimeout")
	require.Empty(t, p.good("GET", "/faults", "")["faults"])
	require.Empty(t, p.good("GET", dev+"/c2d", "")["c2d"])
}

// Web pages of other sites can reach loopback and must not control the hub.
func TestTheControlAPIIsNotForOtherSites(t *testing.T) {
	p := start(t)
	for _, c := range []struct {
		host, origin string
		status       int
	}{{"", "", 200}, {"localhost:80", "", 200}, {"[::1]:1", "", 200}, {"[::1]", "", 200}, {"127.0.0.1", "", 200},
		{"attacker.test",
			"", 403}, {"", "http://attacker.test", 403}, {"", "null", 403}} {
		r, err := http.NewRequestWithContext(soon(t), "GET", p.ready.Control+"/hub", nil)
		require.NoError(t, err)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		answer.Body.Close()
		require.Equal(t, c.status, answer.StatusCode, "%+v", c)
	}
}

// Binary bodies in requests and answers, and modules.
func TestMessagesToAModule(t *testing.T) {
	p := start(t, "-device", "dev-1", "-device", "dev-1/cam")
	got := make(chan *transport.Message, 1)
	c := p.client("dev-1/cam", "mqtt", nil)
	c.HandleMessages(func(_ context.Context, m *transport.Message) error {
		got <- m
		return nil
	})
	require.NoError(t, c.Open(soon(t)))
	p.good("POST", "/devices/dev-1%2Fcam/inputs/lens",
		`{"bodyBase64":"/wA=","properties":{"b":"2","a":"1"},"expiry":"2099-01-02T03:04:05Z"}`)
	p.good("GET", "/devices/dev-1%2Fcam/inputs/wait", "")
	m := <-got
	require.Equal(t, []byte{0xff, 0}, m.Body)
	require.Equal(t, "lens", m.Input)
	all := p.good("GET", "/devices/dev-1%2Fcam/inputs", "")["inputs"].([]any)
	require.Equal(t, "/wA=", all[0].(map[string]any)["bodyBase64"])
	require.Equal(t, "2099-01-02T03:04:05Z", all[0].(map[string]any)["expires"])

	require.NoError(t, c.Send(soon(t), &transport.Message{ID: "1", Body: []byte{0xff}}))
	for device, n := range map[string]int{"": 1, "dev-1": 1, "dev-1%2Fcam": 1} {
		messages := p.good("GET", "/messages?device="+device, "")["messages"].([]any)
		require.Len(t, messages, n)
		require.Equal(t, "/w==", messages[0].(map[string]any)["bodyBase64"])
	}
	p.good("POST", "/devices/dev-1%2Fcam/inputs/lens", `{"body":"1","expiry":"2099-01-02T03:04:05+24:00"}`)
	<-got
	all = p.good("GET", "/devices/dev-1%2Fcam/inputs", "")["inputs"].([]any)
	require.Equal(t, "2099-01-01T03:04:05Z", all[1].(map[string]any)["expires"])
}

func TestUploads(t *testing.T) {
	p := start(t)
	creds, err := device.ParseConnectionString(p.ready.Devices[0].ConnectionString)
	require.NoError(t, err)
	u, err := fileupload.New(creds, &fileupload.Options{Network: netopt.Options{Addr: p.ready.Addresses["https"],
		TLS: p.tls()}})
	require.NoError(t, err)
	defer u.Close()
	p.good("POST", "/faults", `{"kind":"CutBlobBody"}`)
	_, err = u.Upload(soon(t), "logs/a.txt", strings.NewReader("sunny"), -1)
	require.NoError(t, err)
	one := p.good("GET", "/uploads/wait", "")["uploads"].([]any)[0].(map[string]any)
	require.Equal(t, []any{"dev-1", "dev-1/logs/a.txt", "succeeded", 5.0}, []any{one["device"], one["file"], one["state"],
		one["size"]})
	require.Contains(t, p.refused(504, "GET", "/uploads/wait?count=9&within=0s", "").Problem, `there is: {"succeeded":1}`)
	file := p.good("GET", "/files/dev-1/logs/a.txt", "")
	require.Equal(t, "sunny", file["body"])
	require.EqualValues(t, 1, p.good("GET", "/faults/1", "")["fired"])
	p.good("POST", "/reset", "")
	require.Empty(t, p.good("GET", "/uploads", "")["uploads"])
}

// A back end connects with the printed connection string and address. A reset undoes its changes.
func TestBackEnds(t *testing.T) {
	p := start(t, "-host", "hub.example.test")
	parts := make(map[string]string)
	for _, part := range strings.Split(p.ready.Service.ConnectionString, ";") {
		name, v, _ := strings.Cut(part, "=")
		parts[name] = v
	}
	require.Equal(t, "hub.example.test", parts["HostName"])
	key, err := base64.StdEncoding.DecodeString(parts["SharedAccessKey"])
	require.NoError(t, err)
	until := time.Now().Add(time.Hour).Unix()
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s\n%d", parts["HostName"], until)
	sas := fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d&skn=%s", parts["HostName"],
		url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil))), until, parts["SharedAccessKeyName"])
	tls := p.tls()
	tls.ServerName = parts["HostName"]
	pipe := &http.Transport{TLSClientConfig: tls}
	defer pipe.CloseIdleConnections()
	do := func(method, path, body string, header ...string) int {
		r, err := http.NewRequestWithContext(soon(t), method, "https://"+p.ready.Addresses["https"]+path+
			"?api-version=2021-04-12", strings.NewReader(body))
		require.NoError(t, err)
		r.Host = parts["HostName"]
		r.Header.Set("Authorization", sas)
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		answer, err := pipe.RoundTrip(r)
		require.NoError(t, err)
		answer.Body.Close()
		return answer.StatusCode
	}
	// Only a request that may be repeated survives an idle connection that the hub has cut.
	reset := func() {
		p.good("POST", "/reset", "")
		pipe.CloseIdleConnections()
	}
	names := func() (all []string) {
		for _, d := range p.good("GET", "/devices", "")["devices"].([]any) {
			all = append(all, d.(map[string]any)["device"].(string))
		}
		return all
	}
	require.Equal(t, 200, do("PUT", "/devices/new", `{"deviceId":"new"}`))
	require.Equal(t, 200, do("PUT", "/devices/new/modules/cam", `{"deviceId":"new","moduleId":"cam"}`))
	require.Equal(t, 204, do("DELETE", "/devices/dev-1", "", "If-Match", "*"))
	require.Equal(t, []string{"new", "new/cam"}, names())
	reset()
	require.Equal(t, []string{"dev-1"}, names())
	c := p.client("dev-1", "mqtt", nil)

	require.Equal(t, 200, do("PATCH", "/twins/dev-1", `{"properties":{"desired":{"a":1}}}`))
	require.Equal(t, map[string]any{"a": 1.0}, p.good("GET", "/devices/dev-1/twin", "")["desired"])

	p.good("POST", "/devices/dev-1/disable", "")
	require.NoError(t, c.Start())
	p.printed(func(l line) bool { return l.Event == "refused" && l.Device == "dev-1" })
	require.NoError(t, c.Close())
	reset()
	again := p.client("dev-1", "mqtt", nil)
	require.NoError(t, again.Open(soon(t)), "with the keys that it had at first")
}

// A wait for messages that spans a reset of the hub waits for messages after the reset.
func TestWaitOverAReset(t *testing.T) {
	p := start(t)
	c := p.client("dev-1", "mqtt", nil)
	require.NoError(t, c.Open(soon(t)))
	for _, id := range []string{"1", "2"} {
		require.NoError(t, c.Send(soon(t), &transport.Message{ID: id}))
	}
	answer := make(chan map[string]any)
	go func() {
		_, got := p.ask("GET", "/messages/wait?count=3&device=dev-1", "")
		answer <- got
	}()
	p.good("GET", "/messages/wait?count=2", "")
	p.good("POST", "/reset", "")
	for _, id := range []string{"3", "4", "5"} {
		require.NoError(t, c.Send(soon(t), &transport.Message{ID: id}))
	}
	got := <-answer
	require.Len(t, got["messages"], 3, got)
	require.Equal(t, "3", got["messages"].([]any)[0].(map[string]any)["messageId"])
}

// The end of the program ends all waiting requests.
func TestEndsOfWaits(t *testing.T) {
	p := start(t)
	type end struct {
		status int
		answer map[string]any
	}
	ends := make(chan end, 2)
	for _, r := range [][3]string{{"GET", "/messages/wait?within=10m"}, {"POST", "/devices/dev-1/methods",
		`{"name":"a","connectTimeout":"5m"}`}} {
		go func() {
			status, answer := p.ask(r[0], r[1], r[2])
			ends <- end{status, answer}
		}()
	}
	require.Eventually(t, func() bool {
		return len(p.good("GET", "/devices/dev-1/methods", "")["calls"].([]any)) == 1
	}, waitLimit, time.Millisecond)
	require.Eventually(t, func() bool { // the request for messages waits too
		stacks := make([]byte, 1<<20)
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte(".waitMessages("))
	}, waitLimit, time.Millisecond)
	require.Zero(t, p.stop())
	for range 2 {
		select {
		case e := <-ends:
			require.Equal(t, 503, e.status, e.answer)
			require.Contains(t, e.answer["error"].(map[string]any)["problem"], "ending")
		case <-soon(t).Done():
			require.Fail(t, "a request did not end")
		}
	}
}
