package http_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

const (
	hostName = "hub1.example.test"
	goodKey  = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	badKey   = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="
)

// scripted is a fake hub that gives answers that a well-behaved one does not. Otherwise it follows
// the service's rules. It is written from the service's documentation, not from the code under
// test.
type scripted struct {
	t       testing.TB
	network *memconn.Network
	server  *http.Server
	ended   chan struct{}

	// answer, if set, is called first and returns true if it has answered. Set it before the first
	// request.
	answer   func(w http.ResponseWriter, r *http.Request, body []byte) bool
	scriptMu sync.Mutex // held while answer runs
	// refused, if set, is the Refused of the sessions' configuration.
	refused func() bool

	mu        sync.Mutex
	requests  []seen
	telemetry []transporttest.Received
	inbox     []*message
	settled   []string // "complete 1" and so on, by sequence number
	sequence  int
	lock      int
	held      chan struct{} // closed when answers to telemetry may be sent; nil: at once
	conns     []*memconn.Conn
	early     bool                                         // answer before the body is read
	unread    func(w http.ResponseWriter, r *http.Request) // answers telemetry, if set, and reads the body itself
	// delay of answers to telemetry; set before the first request
	late time.Duration
	// module, if set, makes the identity that module of the device; set before the first request
	module string
}

type (
	memConn    = memconn.Conn
	connection = net.Conn
)

// seen is a received request.
type seen struct {
	method, host, path, query string
	header                    http.Header
	body                      []byte
	messages                  int
}

type message struct {
	body      string
	header    map[string]string
	sequence  int
	lock      string
	until     time.Time
	delivered int
}

func newScripted(t testing.TB) *scripted {
	h := &scripted{t: t, network: memconn.NewNetwork(hostName + ":443"), ended: make(chan struct{})}
	h.server = &http.Server{Handler: http.HandlerFunc(h.serve), DisableGeneralOptionsHandler: true}
	go func() {
		defer close(h.ended)
		_ = h.server.Serve(&watched{h.network, h})
	}()
	t.Cleanup(h.close)
	return h
}

func (h *scripted) close() {
	h.HoldAnswers(false)
	_ = h.server.Close()
	_ = h.network.Close()
	<-h.ended
}

// watched is a listener that keeps its connections.
type watched struct {
	*memconn.Network
	h *scripted
}

func (l *watched) Accept() (c connection, err error) {
	c, err = l.Network.Accept()
	if err == nil {
		l.h.mu.Lock()
		l.h.conns = append(l.h.conns, c.(*memconn.Conn))
		l.h.mu.Unlock()
	}
	return c, err
}

func (h *scripted) creds(key string) *transport.Credentials {
	sign, err := transport.SharedKey(key)
	if err != nil {
		h.t.Fatal(err)
	}
	return &transport.Credentials{Host: hostName, DeviceID: "dev-1", Sign: sign}
}

// note records a request.
func (h *scripted) note(r *http.Request, body []byte) *seen {
	s := seen{r.Method, r.Host, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), body, 0}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, s)
	return &h.requests[len(h.requests)-1]
}

// seen returns the requests so far, without the proof of a dial.
func (h *scripted) seen() []seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.requests),
		func(s seen) bool { return strings.Contains(s.path, "00000000-0000") })
}

func (h *scripted) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	early := h.early
	h.mu.Unlock()
	if early {
		refuse(w, 413001, "MessageTooLarge")
		return
	}
	if h.unread != nil && strings.HasSuffix(r.URL.Path, "/events") {
		h.unread(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	h.note(r, body)
	w.Header().Set("x-ms-request-id", "track-1")
	switch {
	case h.answered(w, r, body):
	case !h.authorized(r):
		refuse(w, 401003, "IotHubUnauthorized")
	default:
		h.route(w, r, body)
	}
}

func (h *scripted) answered(w http.ResponseWriter, r *http.Request, body []byte) bool {
	h.scriptMu.Lock()
	defer h.scriptMu.Unlock()
	return h.answer != nil && h.answer(w, r, body)
}

// change changes variables that answer uses.
func (h *scripted) change(f func()) {
	h.scriptMu.Lock()
	defer h.scriptMu.Unlock()
	f()
}

func (h *scripted) route(w http.ResponseWriter, r *http.Request, body []byte) {
	path, isDevice := strings.CutPrefix(r.URL.Path, "/"+h.resource()+"/messages/")
	lock, isInbox := strings.CutPrefix(path, "deviceBound")
	switch {
	case !isDevice || r.URL.Query().Get("api-version") == "":
		refuse(w, 404001, "DeviceNotFound")
	case path == "events" && r.Method == http.MethodPost:
		h.take(w, r, body)
	case isInbox && lock == "" && r.Method == http.MethodGet:
		h.give(w)
	case isInbox && r.Method == http.MethodDelete && r.URL.Query().Has("reject"):
		h.settle(w, strings.Trim(lock, "/"), "reject")
	case isInbox && r.Method == http.MethodDelete:
		h.settle(w, strings.Trim(lock, "/"), "complete")
	case isInbox && r.Method == http.MethodPost && strings.HasSuffix(lock, "/abandon"):
		h.settle(w, strings.Trim(strings.TrimSuffix(lock, "/abandon"), "/"), "abandon")
	default:
		refuse(w, 405000, "GenericMethodNotAllowed")
	}
}

// resource returns the path of the identity.
func (h *scripted) resource() string {
	if h.module != "" {
		return "devices/dev-1/modules/" + h.module
	}
	return "devices/dev-1"
}

// authorized checks the token's text; it verifies the signature by signing again.
func (h *scripted) authorized(r *http.Request) bool {
	text, isSAS := strings.CutPrefix(r.Header.Get("Authorization"), "SharedAccessSignature ")
	fields, err := url.ParseQuery(text)
	if !isSAS || err != nil {
		return false
	}
	var se int64
	if _, err := fmt.Sscan(fields.Get("se"), &se); err != nil || time.Unix(se, 0).Before(time.Now()) {
		return false
	}
	sign, err := transport.SharedKey(goodKey)
	if err != nil {
		return false
	}
	want, err := transport.SignToken(r.Context(), sign, hostName+"/"+h.resource(), "", time.Unix(se, 0))
	return err == nil && want.Text.Reveal() == r.Header.Get("Authorization")
}

func refuse(w http.ResponseWriter, code int, name string) {
	if code < 1000 {
		w.WriteHeader(code)
		return
	}
	w.Header().Set("iothub-errorcode", name)
	w.WriteHeader(code / 1000)
	inner, _ := json.Marshal(map[string]any{"errorCode": code, "trackingId": "track-1", "message": "no"})
	_ = json.NewEncoder(w).Encode(map[string]string{"Message": string(inner), "ExceptionMessage": ""})
}

// take receives telemetry.
func (h *scripted) take(w http.ResponseWriter, r *http.Request, body []byte) {
	messages, err := parse(r.Header, body)
	h.mu.Lock()
	if err == nil {
		h.telemetry = append(h.telemetry, messages...)
		h.requests[len(h.requests)-1].messages = len(messages)
	}
	held := h.held
	h.mu.Unlock()
	if err != nil {
		refuse(w, 400012, "DeserializationError")
		return
	}
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
		}
	}
	select {
	case <-time.After(h.late):
	case <-r.Context().Done():
	}
	w.WriteHeader(http.StatusNoContent)
}

// parse reads a single message or a batch.
func parse(header http.Header, body []byte) ([]transporttest.Received, error) {
	if header.Get("Content-Type") != "application/vnd.microsoft.iothub.json" {
		var properties members
		for _, name := range slices.Sorted(maps.Keys(header)) {
			properties = append(properties, [2]string{strings.ToLower(name), header.Get(name)})
		}
		return []transporttest.Received{received(body, properties)}, nil
	}
	var batch []struct {
		Body          string  `json:"body"`
		Base64Encoded *bool   `json:"base64Encoded"`
		Properties    members `json:"properties"`
	}
	if err := json.Unmarshal(body, &batch); err != nil {
		return nil, err
	}
	if len(batch) == 0 || len(batch) > 500 || len(body) > 256<<10 {
		return nil, fmt.Errorf("a batch of %d messages, %d bytes", len(batch), len(body))
	}
	var out []transporttest.Received
	for _, entry := range batch {
		payload := []byte(entry.Body)
		if entry.Base64Encoded == nil || *entry.Base64Encoded {
			var err error
			if payload, err = base64.StdEncoding.DecodeString(entry.Body); err != nil {
				return nil, err
			}
		}
		out = append(out, received(payload, entry.Properties))
	}
	return out, nil
}

// members are the members of a JSON object, in order.
type members [][2]string

func (m *members) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	var tokens []string
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if s, is := token.(string); is {
			tokens = append(tokens, s)
		}
	}
	for pair := range slices.Chunk(tokens, 2) {
		*m = append(*m, [2]string(pair))
	}
	return nil
}

func received(body []byte, properties members) transporttest.Received {
	m := transport.Message{Body: bytes.Clone(body)}
	var system transport.SystemProperties
	for _, p := range properties {
		name, value := p[0], p[1]
		at, _ := time.Parse(time.RFC3339Nano, value)
		switch app, is := strings.CutPrefix(name, "iothub-app-"); {
		case is:
			m.Properties = append(m.Properties, transport.Property{Name: app, Value: value})
		case name == "iothub-messageid":
			m.ID = value
		case name == "iothub-correlationid":
			m.CorrelationID = value
		case name == "iothub-contenttype":
			m.ContentType = value
		case name == "iothub-contentencoding":
			m.ContentEncoding = value
		case name == "dt-subject":
			m.Component = value
		case name == "iothub-creationtimeutc":
			m.Created = at.UTC()
		case name == "iothub-expiry":
			m.Expires = at.UTC()
		case name == "iothub-to":
			system.To = value
		case name == "iothub-userid":
			system.UserID = value
		case name == "iothub-messageschema":
			system.Schema = value
		case name == "iothub-interface-id":
			system.InterfaceID = value
		case name == "iothub-connection-device-id":
			system.ConnectionDeviceID = value
		case name == "iothub-connection-module-id":
			system.ConnectionModuleID = value
		}
	}
	if system != (transport.SystemProperties{}) {
		m.System = &system
	}
	return transporttest.Received{Message: m}
}

// give delivers a cloud-to-device message.
func (h *scripted) give(w http.ResponseWriter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, c := range h.inbox {
		if now.Before(c.until) {
			continue
		}
		h.lock++
		c.lock, c.until = fmt.Sprintf("6f1a0000-0000-4000-8000-%012d", h.lock), now.Add(time.Minute)
		w.Header().Set("ETag", `"`+c.lock+`"`)
		w.Header().Set("iothub-sequencenumber", fmt.Sprint(c.sequence))
		w.Header().Set("iothub-deliverycount", fmt.Sprint(c.delivered))
		for name, value := range c.header {
			w.Header().Set(name, value)
		}
		c.delivered++
		_, _ = io.WriteString(w, c.body)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h *scripted) settle(w http.ResponseWriter, lock, how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.inbox, func(c *message) bool { return c.lock == lock && time.Now().Before(c.until) })
	if i < 0 {
		refuse(w, 412002, "DeviceMessageLockLost")
		return
	}
	h.settled = append(h.settled, fmt.Sprintf("%s %d", how, h.inbox[i].sequence))
	if how == "abandon" {
		h.inbox[i].until = time.Time{}
	} else {
		h.inbox = slices.Delete(h.inbox, i, i+1)
	}
	w.WriteHeader(http.StatusNoContent)
}

// message appends a message to the device's queue.
func (h *scripted) message(body string, header map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sequence++
	h.inbox = append(h.inbox, &message{body: body, header: header, sequence: h.sequence})
}

func (h *scripted) verdicts() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.settled)
}

func (h *scripted) Received() []transporttest.Received {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.telemetry)
}

func (h *scripted) HoldAnswers(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case on && h.held == nil:
		h.held = make(chan struct{})
	case !on && h.held != nil:
		close(h.held)
		h.held = nil
	}
}

func (h *scripted) Silence() { h.each(func(c *memconn.Conn) { c.Hold(true) }) }

func (h *scripted) each(f func(*memconn.Conn)) {
	h.mu.Lock()
	conns := slices.Clone(h.conns)
	h.mu.Unlock()
	for _, c := range conns {
		f(c)
	}
}

func (h *scripted) Deliver(body string) { h.message(body, nil) }

func (h *scripted) Undelivered() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.inbox)
}
