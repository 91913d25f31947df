package observe

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// defaultGrace is the default of Health.Grace.
const defaultGrace = 5 * time.Minute

// Client is the part of *device.Client that is used. Both methods are safe for concurrent use.
type Client interface {
	Status() device.Status
	Stats() device.Stats
}

// Health is an http.Handler for /healthz and /stats. Its zero value is ready. Its methods are safe
// for concurrent use, also while requests are served. Set Grace before the first request.
type Health struct {
	// Grace is how long a client that tries to connect without success counts as healthy. Default:
	// 5 minutes; negative: such a client is unhealthy at once.
	Grace time.Duration

	mu      sync.RWMutex // not held during calls of clients
	clients map[string]Client
}

// Add adds c under a name and replaces a client of that name. c must not be nil.
func (h *Health) Add(name string, c Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients == nil {
		h.clients = make(map[string]Client)
	}
	h.clients[name] = c
}

// Remove removes a client. An unknown name has no effect.
func (h *Health) Remove(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, name)
}

// ServeHTTP answers a request as the package documentation says.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer func([]named) (int, any)
	switch r.URL.Path {
	case "/healthz":
		answer = h.health
	case "/stats":
		answer = stats
	default:
		reply(w, r, http.StatusNotFound, failure{"there is only /healthz and /stats"})
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		reply(w, r, http.StatusMethodNotAllowed, failure{"there is only GET and HEAD"})
		return
	}
	query := r.URL.Query()
	asked := h.list()
	if query.Has("client") {
		name := query.Get("client")
		asked = slices.DeleteFunc(asked, func(n named) bool { return n.name != name })
		if len(asked) == 0 {
			reply(w, r, http.StatusNotFound, failure{"there is no client of that name"})
			return
		}
	}
	code, body := answer(asked)
	reply(w, r, code, body)
}

type named struct {
	name   string
	client Client
}

func (h *Health) list() []named {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := make([]named, 0, len(h.clients))
	for name, c := range h.clients {
		all = append(all, named{name, c})
	}
	return all
}

type failure struct {
	Error string `json:"error"`
}

func reply(w http.ResponseWriter, r *http.Request, code int, body any) {
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil { // a clock past the year 9999
		code, text = http.StatusInternalServerError, []byte(`{"error":"internal"}`)
	}
	text = append(text, '\n')
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text) // the requester may have disconnected
	}
}

// healthAnswer is the body of /healthz.
type healthAnswer struct {
	Healthy bool                    `json:"healthy"`
	Clients map[string]clientHealth `json:"clients"`
}

type clientHealth struct {
	Healthy bool    `json:"healthy"`
	State   string  `json:"state"`
	Reason  string  `json:"reason"`
	Outage  float64 `json:"outage_seconds"`
}

func (h *Health) health(asked []named) (int, any) {
	grace := h.Grace
	if grace == 0 {
		grace = defaultGrace
	}
	a := healthAnswer{Healthy: true, Clients: make(map[string]clientHealth, len(asked))}
	for _, n := range asked {
		// Stats must be read first: in the other order, a client that gives up in between would show an
		// outage of zero.
		outage := n.client.Stats().Outage
		s := n.client.Status()
		c := clientHealth{State: s.State.String(), Reason: s.Reason.String()}
		switch s.State {
		case device.StateConnected:
			c.Healthy = true
		case device.StateDisconnectedRetrying:
			c.Healthy = outage < grace
			c.Outage = outage.Seconds()
		case device.StateDisconnected:
		}
		a.Healthy = a.Healthy && c.Healthy
		a.Clients[n.name] = c
	}
	if a.Healthy {
		return http.StatusOK, a
	}
	return http.StatusServiceUnavailable, a
}

// statsAnswer is the body of /stats.
type statsAnswer struct {
	Time    time.Time              `json:"time"` // by the device's clock
	Clients map[string]clientStats `json:"clients"`
}

type clientStats struct {
	Status statusOf `json:"status"`
	Stats  statsOf  `json:"stats"`
}

type statusOf struct {
	State   string    `json:"state"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"`
	Age     float64   `json:"age_seconds"` // since then, by a monotonic clock
	Retry   int       `json:"retry"`
	Delay   float64   `json:"delay_seconds"`
	Error   *errorOf  `json:"error"`
	Hint    string    `json:"hint"`
	Flaps   int       `json:"flaps"`
	Suspect string    `json:"suspect"`
}

// errorOf describes a failure; null without one.
type errorOf struct {
	Text       string  `json:"text"`
	Kind       string  `json:"kind"`
	Cause      string  `json:"cause"` // kind of the failure that ended the retries
	Scope      string  `json:"scope"`
	Op         string  `json:"op"`
	Proto      string  `json:"proto"`
	RetryAfter float64 `json:"retry_after_seconds"`
}

type statsOf struct {
	Accepted     uint64 `json:"accepted"`
	Acknowledged uint64 `json:"acknowledged"`
	Refused      uint64 `json:"refused"`
	Expired      uint64 `json:"expired"`
	Dropped      uint64 `json:"dropped"`
	Cancelled    uint64 `json:"cancelled"`
	Resent       uint64 `json:"resent"`

	Queued      int `json:"queued"`
	QueuedBytes int `json:"queued_bytes"`
	InFlight    int `json:"in_flight"`

	Received         uint64 `json:"received"`
	MessagesAccepted uint64 `json:"messages_accepted"`
	MessagesReleased uint64 `json:"messages_released"`
	MessagesRejected uint64 `json:"messages_rejected"`
	InputsUnhandled  uint64 `json:"inputs_unhandled"`
	HandlerPanics    uint64 `json:"handler_panics"`

	DesiredChanges uint64 `json:"desired_changes"`
	DesiredSkipped uint64 `json:"desired_skipped"`
	MethodCalls    uint64 `json:"method_calls"`
	MethodsRefused uint64 `json:"methods_refused"`
	AnswersLost    uint64 `json:"answers_lost"`
	MethodsDoubled uint64 `json:"methods_doubled"`

	Attempts      uint64   `json:"attempts"`
	Connections   uint64   `json:"connections"`
	Outage        float64  `json:"outage_seconds"`
	LongestOutage float64  `json:"longest_outage_seconds"`
	LastError     *errorOf `json:"last_error"`
}

func stats(asked []named) (int, any) {
	a := statsAnswer{Time: time.Now().UTC(), Clients: make(map[string]clientStats, len(asked))}
	for _, n := range asked {
		a.Clients[n.name] = clientStats{describeStatus(n.client.Status()), describeStats(n.client.Stats())}
	}
	return http.StatusOK, a
}

func describeStatus(s device.Status) statusOf {
	return statusOf{
		State: s.State.String(), Reason: s.Reason.String(), Since: s.Since.UTC(), Age: max(0, time.Since(s.Since)).Seconds(),
		Retry: s.Retry, Delay: s.Delay.Seconds(), Error: describeError(s.Err), Hint: s.Hint(), Flaps: s.Flaps,
		Suspect: s.Suspect.String(),
	}
}

func describeStats(s device.Stats) statsOf {
	return statsOf{
		Accepted: s.Accepted, Acknowledged: s.Acknowledged, Refused: s.Refused, Expired: s.Expired, Dropped: s.Dropped,
		Cancelled: s.Cancelled, Resent: s.Resent,
		Queued: s.Queued, QueuedBytes: s.QueuedBytes, InFlight: s.InFlight,
		Received: s.Received, MessagesAccepted: s.MessagesAccepted, MessagesReleased: s.MessagesReleased,
		MessagesRejected: s.MessagesRejected, InputsUnhandled: s.InputsUnhandled, HandlerPanics: s.HandlerPanics,
		DesiredChanges: s.DesiredChanges, DesiredSkipped: s.DesiredSkipped, MethodCalls: s.MethodCalls,
		MethodsRefused: s.MethodsRefused, AnswersLost: s.AnswersLost, MethodsDoubled: s.MethodsDoubled,
		Attempts: s.Attempts, Connections: s.Connections, Outage: s.Outage.Seconds(),
		LongestOutage: s.LongestOutage.Seconds(), LastError: describeError(s.LastError),
	}
}

func describeError(err error) *errorOf {
	if err == nil {
		return nil
	}
	d := &errorOf{Text: scrub.Error(err), Kind: transport.KindOf(err).String()}
	if e := transport.Find(err); e != nil {
		d.Scope, d.Op, d.Proto, d.RetryAfter = e.Scope.String(), e.Op.String(), e.Proto, e.RetryAfter.Seconds()
		if cause := transport.Find(e.Err); cause != nil {
			d.Cause = cause.Kind.String()
		}
	}
	return d
}
