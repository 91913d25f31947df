package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/workload"
)

const (
	maxInput    = 1 << 20          // bytes of a request body
	bodyTime    = 10 * time.Second // time limit of a request's head, and of its body
	writeTime   = 10 * time.Second // time limit of one write
	writePart   = 64 << 10         // bytes of one write of an answer
	defaultWait = 30 * time.Second // default of the parameter within
	maxWait     = 10 * time.Minute
)

// control is the control API: HTTP with JSON, and the page that uses it.
type control struct {
	ctx      context.Context // ends all waiting requests
	cancel   context.CancelFunc
	hub      *testbroker.Hub
	reg      *registry
	ready    *readyObject
	keep     int                             // limit of kept messages; 0 = all
	provider *provider                       // nil without a provisioning service
	daemon   *workload.Server                // nil without a workload API
	trust    func() []byte                   // the content of the file of -ca
	writeCA  func() (path string, err error) // writes that file again
	others   []*control                      // of the other hubs
	feed     *feed
	guard    guard

	server http.Server
	wg     sync.WaitGroup

	mu     sync.Mutex
	faults []*declared // in the order of their numbers
	made   int
}

func newControl(ctx context.Context, hub *testbroker.Hub, reg *registry, ready *readyObject, keep int) *control {
	c := &control{hub: hub, reg: reg, ready: ready, keep: keep}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.server = http.Server{
		Handler:           c.handler(),
		BaseContext:       func(net.Listener) context.Context { return c.ctx },
		ReadHeaderTimeout: bodyTime, // ReadTimeout would end longer waits
		IdleTimeout:       time.Minute,
	}
	return c
}

// start serves in its own goroutine.
func (c *control) start(l net.Listener) {
	c.wg.Go(func() { c.server.Serve(l) }) // until stop
}

// stop ends waiting requests, lets other answers finish, and joins the goroutine. A second stop
// does nothing.
func (c *control) stop() {
	c.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if c.server.Shutdown(ctx) != nil {
		c.server.Close()
	}
	c.wg.Wait()
}

// A route is one request of the API.
type route struct {
	method, path string
	does         string
	handle       handler // nil for the events, which are no JSON
}

type handler func(*control, *call) (any, *refusal)

// listed is the handler of a request for a log, or its newest entries. A count of 0 is all.
func listed(name string, log func(c *control, r *call, count int) any) handler {
	return func(c *control, r *call) (any, *refusal) {
		count := 0
		if problem := r.query(last(&count)); problem != nil {
			return nil, problem
		}
		return map[string]any{name: log(c, r, count)}, nil
	}
}

// bare is the handler of a request without parameters and members.
func bare(handle handler) handler {
	return func(c *control, r *call) (any, *refusal) {
		if problem := r.read(); problem != nil {
			return nil, problem
		}
		return handle(c, r)
	}
}

// limit is the size limit of the body of a request.
func (r route) limit() int64 {
	if r.path == "/updates" {
		return maxUpdate
	}
	return maxInput
}

// routes is the API. API.md has an example of each route.
func routes() []route {
	return []route{
		{"GET", "/", "this list; a further hub has the same requests behind /hubs/ and its name", (*control).index},
		{"GET", "/events", "the lines that testhub prints, as server-sent events, without an end; back ends read telemetry " +
			"at -events", nil},
		{"GET", "/health", "whether testhub serves; for supervisors", (*control).health},
		{"GET", "/hub", "host name, addresses and certificate of the hub", (*control).about},
		{"POST", "/reset", "cut all connections, remove all faults, forget messages in both directions, twins and calls; " +
			"declared " +
			"devices as they were", bare((*control).reset)},

		{"GET", "/devices", "devices and modules, and how many connections each has", (*control).devices},
		{"POST", "/devices", "register a device, which is as one in the file of -devices", (*control).addDevice},
		{"DELETE", "/devices/{device}", "remove a device with its modules, or a module, from the registry",
			bare((*control).removeDevice)},
		{"GET", "/devices/{device}/access", "what a program needs to be the device: keys, a token, and commands " +
			"that send a message", (*control).access},
		{"POST", "/devices/{device}/reset", "cut the device's connections by RST", endConnections((*testbroker.Hub).Drop)},
		{"POST", "/devices/{device}/close", "end the device's connections in good order",
			endConnections((*testbroker.Hub).CloseConnections)},
		{"POST", "/devices/{device}/disable", "forbid the device to connect, and end its connections", setEnabled(false)},
		{"POST", "/devices/{device}/enable", "allow the device to connect", setEnabled(true)},
		{"GET", "/devices/{device}/wait", "wait until the device has at least this many connections, 1 if nothing is said, " +
			"or none at all for 0", (*control).waitConnections},

		{"GET", "/messages", "telemetry, the oldest first", (*control).messages},
		{"GET", "/messages/wait", "wait until there is this much telemetry", (*control).waitMessages},
		{"GET", "/conflicts", "pairs of messages that have the same sender and id, but not the same body",
			(*control).conflicts},

		{"POST", "/devices/{device}/c2d", "send a cloud-to-device message", (*control).sendC2D},
		{"GET", "/devices/{device}/c2d", "what became of the cloud-to-device messages, all or the last",
			listed("c2d", (*control).c2dLog)},
		{"GET", "/devices/{device}/c2d/wait", "wait until this many of them are in a state", (*control).waitC2D},
		{"DELETE", "/devices/{device}/c2d", "throw away those that wait", bare((*control).purgeC2D)},

		{"GET", "/devices/{device}/twin", "read the twin", (*control).twin},
		{"PATCH", "/devices/{device}/twin/desired", "merge into the desired properties; null removes",
			(*control).changeTwin},
		{"PUT", "/devices/{device}/twin/desired", "replace the desired properties", (*control).changeTwin},
		{"PATCH", "/devices/{device}/twin/tags", "merge into the tags", (*control).changeTwin},
		{"PUT", "/devices/{device}/twin/tags", "replace the tags", (*control).changeTwin},
		{"POST", "/devices/{device}/twin/wait",
			"wait until the reported properties, the desired ones or the tags have these members", (*control).waitTwin},

		{"POST", "/devices/{device}/methods", "call a direct method and wait for the answer", (*control).callMethod},
		{"GET", "/devices/{device}/methods", "all calls, or the last, and what became of them",
			listed("calls", (*control).methodLog)},

		{"POST", "/devices/{device}/inputs/{input}", "send a message to an input of a module", (*control).sendInput},
		{"GET", "/devices/{device}/inputs", "what became of the messages to inputs, all or the last",
			listed("inputs", (*control).inputLog)},
		{"GET", "/devices/{device}/inputs/wait", "wait until this many of them are in a state", (*control).waitInputs},

		{"GET", "/certificate", "the certificates that clients must trust, as in the file of -ca", (*control).certificate},
		{"POST", "/certificate/rotate", "replace the certificate and its authority, and write the file of -ca again",
			(*control).rotate},

		{"GET", "/gateway", "whether the gateway is stopped or off-line, and how many messages it has stored",
			(*control).aboutGateway},
		{"GET", "/gateway/wait", "wait until it has no more stored messages than this, none if nothing is said",
			(*control).waitGateway},
		{"POST", "/gateway/offline", "cut the gateway off from the hub: it stores what devices send",
			turnGateway(func(h *testbroker.Hub) error { return h.SetOffline(true) })},
		{"POST", "/gateway/online", "connect it to the hub again",
			turnGateway(func(h *testbroker.Hub) error { return h.SetOffline(false) })},
		{"POST", "/gateway/stop", "stop the gateway: cut all connections, refuse new ones",
			turnGateway((*testbroker.Hub).StopGateway)},
		{"POST", "/gateway/start", "start it again", turnGateway((*testbroker.Hub).StartGateway)},

		{"GET", "/workload", "address of the workload API, its calls, and the environment of each module",
			(*control).aboutWorkload},
		{"GET", "/workload/wait", "wait until there were this many calls", (*control).waitWorkload},
		{"POST", "/workload/stop", "make it unreachable, its socket gone", bare((*control).stopWorkload)},
		{"POST", "/workload/start", "start it again", bare((*control).startWorkload)},
		{"POST", "/workload/faults", "declare a fault of the workload API; the requests behind /faults are for it as well",
			(*control).injectWorkload},

		{"GET", "/uploads", "uploads of files, all or the last, and how far they are", listed("uploads", (*control).uploads)},
		{"GET", "/uploads/wait", "wait until devices have reported the end of this many uploads", (*control).waitUploads},
		{"GET", "/files/{file...}", "a file that a device has uploaded", (*control).file},

		{"GET", "/dps", "host name, ID scope and addresses of the provisioning service, and its hubs", (*control).aboutDPS},
		{"GET", "/dps/enrollments", "enrollments and groups, without keys", (*control).enrollments},
		{"POST", "/dps/enrollments/{enrollment}/move", "choose other hubs, for the next registrations", (*control).move},
		{"POST", "/dps/enrollments/{enrollment}/disable", "refuse registrations", setEnrollment(false)},
		{"POST", "/dps/enrollments/{enrollment}/enable", "allow registrations", setEnrollment(true)},
		{"GET", "/dps/registrations", "devices that have registered", (*control).registrations},
		{"GET", "/dps/registrations/{registration}/wait", "wait until a device is assigned, to this hub if one is named",
			(*control).waitRegistration},

		{"GET", "/updates", "published updates and their files", (*control).listUpdates},
		{"POST", "/updates", "publish an update: an import manifest and its files", (*control).publish},
		{"POST", "/updates/reload", "read the directory of -updates again", bare((*control).reloadUpdates)},
		{"DELETE", "/updates/{provider}/{name}/{version}", "remove an update with its deployments",
			bare((*control).removeUpdate)},
		{"GET", "/updates/deployments", "deployments, and how many devices are in each state", (*control).deployments},
		{"POST", "/updates/deployments", "offer an update to devices", (*control).deploy},
		{"DELETE", "/updates/deployments/{workflow}", "offer it to no device any more", bare((*control).withdraw)},
		{"POST", "/updates/deployments/{workflow}/retry", "offer it again to devices of hubs where it failed",
			bare((*control).retry)},
		{"GET", "/updates/devices", "devices with their installed updates, workflows and reports", (*control).updateDevices},
		{"GET", "/updates/devices/{registration}", "one of them", (*control).updateDevice},
		{"GET", "/updates/devices/{registration}/wait",
			"wait until a device has brought a deployment to an outcome, any final one if none is named",
			(*control).waitUpdate},
		{"GET", "/updates/keys", "root keys and signing keys", (*control).updateKeys},
		{"POST", "/updates/keys/rotate", "sign with a new key, of a root or of a manifest", (*control).rotateKeys},
		{"POST", "/updates/keys/revoke", "disable the signing key, and sign with a new one", bare((*control).revokeKey)},
		{"POST", "/updates/keys/{key}/disable", "disable a root key", bare((*control).disableRoot)},
		{"GET", "/updates/rootkeys", "the root key package that devices download", (*control).rootKeys},

		{"POST", "/dps/faults", "declare a fault of the provisioning service; the requests below are for it as well",
			(*control).injectDPS},

		{"GET", "/faults/kinds", "all kinds of faults, with their protocols and fields", (*control).kinds},
		{"POST", "/faults", "declare a fault", (*control).inject},
		{"GET", "/faults", "the faults that are declared, and how often each has happened", (*control).listFaults},
		{"GET", "/faults/{fault}", "one of them", (*control).fault},
		{"GET", "/faults/{fault}/wait", "wait until it has happened this often", (*control).waitFault},
		{"DELETE", "/faults/{fault}", "remove it", (*control).removeFault},
		{"DELETE", "/faults", "remove all", bare((*control).removeFaults)},
	}
}

// A call is a request to the API.
type call struct {
	*http.Request
	body []byte
}

// handler returns the API and the page, which the guard protects from pages of other sites.
func (c *control) handler() http.Handler {
	mux := c.mux()
	mux.HandleFunc("/hubs/{hub}/", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("hub")
		for _, other := range c.others {
			if strings.EqualFold(other.hub.HostName(), name) {
				http.StripPrefix("/hubs/"+name, other.mux()).ServeHTTP(w, r)
				return
			}
		}
		refuse(w, &refusal{status: http.StatusNotFound, Field: "hub", Problem: "there is no other hub named " + name,
			Fix: "GET /dps lists the hubs; the first one is at /"})
	})
	own := pageHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protect(w.Header())
		switch problem := c.guard.check(r); {
		case problem != nil:
			refuse(w, problem)
		case wantsPage(r):
			own.ServeHTTP(w, r)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// mux returns the requests of one hub.
func (c *control) mux() *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes() {
		pattern := r.method + " " + r.path
		if r.path == "/" {
			pattern += "{$}"
		}
		if r.handle == nil {
			mux.HandleFunc(pattern, c.follow)
			continue
		}
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
			line := http.NewResponseController(w)
			line.SetReadDeadline(time.Now().Add(bodyTime))
			body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, r.limit()))
			line.SetReadDeadline(time.Time{})
			if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
				refuse(w, &refusal{status: http.StatusRequestEntityTooLarge,
					Problem: fmt.Sprintf("the body is larger than %d MiB", r.limit()>>20), Fix: "send less"})
				return
			} else if err != nil {
				return // the client has disconnected
			}
			one := &call{req, body}
			var answer any
			problem := c.missing(r.path, one)
			if problem == nil {
				answer, problem = r.handle(c, one)
			}
			if problem != nil {
				refuse(w, problem)
				return
			}
			reply(w, http.StatusOK, answer)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &refusal{status: http.StatusNotFound, Field: "path", Problem: r.Method + " " + r.URL.Path + " is not there",
			Fix: "GET / lists what is"})
	})
	return mux
}

func refuse(w http.ResponseWriter, p *refusal) {
	reply(w, p.status, map[string]*refusal{"error": p})
}

func reply(w http.ResponseWriter, status int, answer any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(answer); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	send(w, b.Bytes())
}

// send writes the body of an answer. A client that reads nothing for a while loses its connection,
// so that its answer does not stay in memory.
func send(w http.ResponseWriter, body []byte) {
	line := http.NewResponseController(w)
	defer line.SetWriteDeadline(time.Time{}) // the connection may serve other requests
	for part := range slices.Chunk(body, writePart) {
		line.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := w.Write(part); err != nil {
			return
		}
	}
	line.Flush()
}

// read decodes the body, a JSON object. An empty body is an object without members.
func (r *call) read(fields ...field) *refusal {
	if problem := r.query(); problem != nil {
		return problem
	}
	data := r.body
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}")
	}
	return readObject(data, "", fields...)
}

// query parses the query parameters.
func (r *call) query(fields ...field) *refusal { return readQuery(r.URL.Query(), fields...) }

// device returns the device or module in the path.
func (r *call) device() string { return r.PathValue("device") }

// missing reports what the path of a route is about and this hub does not have.
func (c *control) missing(path string, r *call) *refusal {
	none := func(field, what, flag string) *refusal {
		return &refusal{status: http.StatusNotFound, Field: field, Problem: "there is no " + what,
			Fix: "start testhub with " + flag}
	}
	switch part := strings.Split(path, "/"); {
	case part[1] == "gateway" && c.hub.GatewayName() == "":
		return none("gateway", "gateway", "-gateway")
	case part[1] == "workload" && c.daemon == nil:
		return none("workload", "workload API", "-workload or -module")
	case part[1] == "dps" && c.provider == nil:
		return none("dps", "provisioning service", "-dps")
	case part[1] == "updates" && (c.provider == nil || c.provider.updates == nil):
		return none("updates", "update service", "-updates")
	case len(part) > 3 && part[3] == "inputs" && !strings.Contains(r.device(), "/"):
		return cmp.Or(c.selector(r.device()),
			bad("device", r.device()+" is a device, which has no inputs", "name a module: device%2Fmodule"))
	}
	return c.selector(r.device())
}

// each returns what show makes of each; never nil, which JSON would write as null.
func each[T, S any](all []T, show func(T) S) []S {
	shown := make([]S, len(all))
	for i, one := range all {
		shown[i] = show(one)
	}
	return shown
}

func ending() *refusal {
	return &refusal{status: http.StatusServiceUnavailable, Problem: "testhub is ending", Fix: "start it again"}
}

func noDevice(id string) *refusal {
	return &refusal{status: http.StatusNotFound, Field: "device", Problem: id + " is not registered",
		Fix: "GET /devices lists those that are; a module is device%2Fmodule in a path"}
}

// selector checks that a device or module is registered; empty is for all.
func (c *control) selector(id string) *refusal {
	if id == "" {
		return nil
	}
	if _, err := c.hub.Device(id); err != nil {
		return noDevice(id)
	}
	return nil
}

// within is the query parameter with the time limit of a wait.
func within(into *time.Duration) field {
	*into = defaultWait
	return span("within", 0, maxWait, into)
}

// waits parses the query parameters and the time limit, and runs a wait function. have says what
// there is when the time is over.
func (c *control) waits(r *call, have func() any, wait func(ctx context.Context) error, fields ...field) *refusal {
	var limit time.Duration
	if problem := r.query(append(fields, within(&limit))...); problem != nil {
		return problem
	}
	return c.waitFor(r, limit, have, wait)
}

func (c *control) waitFor(r *call, limit time.Duration, have func() any, wait func(context.Context) error) *refusal {
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	err := wait(ctx)
	switch {
	case err == nil:
		return nil
	case c.ctx.Err() != nil, errors.Is(err, testbroker.ErrClosed):
		return ending()
	case errors.Is(err, testbroker.ErrNotFound):
		return noDevice(r.device())
	}
	raw, err := json.Marshal(have())
	if err != nil {
		raw = []byte("unknown")
	}
	return &refusal{status: http.StatusGatewayTimeout, Problem: "it has not come to that within " + limit.String() +
		"; there is: " + string(raw),
		Fix: "find out why, or wait longer: within"}
}

func (c *control) index(r *call) (any, *refusal) {
	type entry struct {
		Request string `json:"request"`
		Does    string `json:"does"`
	}
	all := each(routes(), func(r route) entry { return entry{r.method + " " + r.path, r.does} })
	return map[string]any{"requests": all}, r.query()
}

func (c *control) about(r *call) (any, *refusal) { return c.ready.public(), r.query() }

func (c *control) reset(r *call) (any, *refusal) {
	c.mu.Lock() // a fault declared meanwhile belongs after the reset
	defer c.mu.Unlock()
	err := c.reg.restore(c.hub)
	c.hub.Reset()
	for _, d := range c.faults {
		d.injected.Remove() // those of the workload API; the hub has removed its own
	}
	c.faults = nil
	if c.daemon != nil {
		err = cmp.Or(err, c.daemon.Start())
	}
	for _, other := range c.others {
		if _, problem := other.reset(r); problem != nil {
			return nil, problem
		}
	}
	err = cmp.Or(err, c.provider.reset())
	if err != nil {
		return nil, &refusal{status: http.StatusInternalServerError, Problem: err.Error(), Fix: "start testhub again"}
	}
	return map[string]any{}, nil
}
