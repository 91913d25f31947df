package workload

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker"
)

const (
	// DefaultSocket is the path of the socket in the environment of modules while the server listens
	// nowhere. It is that of the runtime's daemon.
	DefaultSocket = "/var/run/iotedge/workload.sock"

	headerLimit = time.Minute     // to send the head of a request
	bodyLimit   = 2 * time.Minute // to send a request
	idleLimit   = 4 * time.Minute // between two requests on a connection
)

// Server is the workload API of a hub. Make it with [New].
type Server struct {
	hub     *testbroker.Hub
	options Options
	secret  [32]byte // of encryption
	seed    uint64   // of faults
	http    *http.Server
	memory  *memconn.Network
	over    chan struct{} // closed when Close has finished

	// Each goroutine that serves a listener or a connection. It grows under mu while closed is false.
	wg sync.WaitGroup

	mu        sync.Mutex // guards the fields below; never held while blocking
	closed    bool
	stopped   bool // between Stop and Start
	endpoints []*endpoint
	conns     map[net.Conn]struct{}
	faults    []*Injected
	injected  uint64 // faults so far; each draws from its own stream
	log       []Record
	counts    map[Call]int
	changed   chan struct{} // closed and replaced when log, counts, a fault's hits or closed change
	foreign   []byte        // the bundle of FaultForeignBundle, in PEM; nil before its first use
}

// New makes a server without listeners. Nil options mean all defaults. It fails for a nil hub, an
// invalid setting, and a device that is not registered.
func New(h *testbroker.Hub, o *Options) (*Server, error) {
	if h == nil {
		return nil, errors.New("workload: no hub; make one with testbroker.New")
	}
	options, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if options.Device != "" {
		d, err := h.Device(options.Device)
		if err == nil && d.ModuleID != "" {
			err = fmt.Errorf("%s is a module; give its device", options.Device)
		}
		if err != nil {
			return nil, fmt.Errorf("workload: Options.Device: %w", err)
		}
	}
	s := &Server{
		hub: h, options: options, seed: cmp.Or(options.Seed, mathrand.Uint64()),
		memory: memconn.NewNetwork("workload"),
		over:   make(chan struct{}),
		conns:  make(map[net.Conn]struct{}), counts: make(map[Call]int), changed: make(chan struct{}),
	}
	rand.Read(s.secret[:]) // never fails
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: headerLimit, ReadTimeout: bodyLimit, IdleTimeout: idleLimit,
		ErrorLog:    log.New(io.Discard, "", 0),
		ConnState:   s.track,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	s.wg.Go(func() { s.http.Serve(s.memory) })
	return s, nil
}

// connKey is the context key of a request's connection.
type connKey struct{}

// Close stops listening, removes the sockets, cuts all connections and waits for every goroutine of
// the server. A second Close waits for the first. The error joins those of closing the listeners.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.over
		return nil
	}
	s.closed = true
	s.wakeLocked()
	for _, f := range s.faults {
		f.stop()
	}
	err := s.closeEndpointsLocked()
	s.mu.Unlock()
	s.http.Close() // the listeners are closed; what is left are connections
	s.memory.Close()
	s.wg.Wait()
	close(s.over)
	return err
}

// Dial connects to the server in memory. Network and address appear only in errors and as the
// remote address. It has the signature of [net.Dialer.DialContext]. It fails with ECONNREFUSED
// while the server is stopped or closed.
func (s *Server) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return s.memory.DialContext(ctx, network, addr)
}

// URI returns the address of the server as IOTEDGE_WORKLOADURI has it: "unix:///path" or
// "http://host:port" of the first [Server.Listen], or the [DefaultSocket] when there was none.
func (s *Server) URI() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.endpoints) == 0 {
		return "unix://" + DefaultSocket
	}
	return s.endpoints[0].uri()
}

// Environment returns the environment of a module, as the runtime sets it: all IOTEDGE_ variables,
// each as "NAME=value". It is nil for a module that is not registered or not of [Options.Device].
func (s *Server) Environment(device, module string) []string {
	if s.options.Device != "" && s.options.Device != device || module == "" {
		return nil
	}
	m, err := s.hub.Device(device + "/" + module)
	if err != nil {
		return nil
	}
	return []string{
		"IOTEDGE_WORKLOADURI=" + s.URI(),
		"IOTEDGE_IOTHUBHOSTNAME=" + s.hub.HostName(),
		"IOTEDGE_GATEWAYHOSTNAME=" + cmp.Or(s.options.GatewayHostName, s.hub.GatewayName(), s.hub.HostName()),
		"IOTEDGE_DEVICEID=" + m.ID,
		"IOTEDGE_MODULEID=" + m.ModuleID,
		"IOTEDGE_MODULEGENERATIONID=" + m.GenerationID,
		"IOTEDGE_AUTHSCHEME=sasToken",
		"IOTEDGE_APIVERSION=" + s.options.APIVersions[len(s.options.APIVersions)-1],
	}
}

// LookupEnv returns a function like [os.LookupEnv] over an environment such as that of
// [Server.Environment], for clients that read theirs through one.
func LookupEnv(environment []string) func(name string) (value string, ok bool) {
	return func(name string) (string, bool) {
		for _, line := range environment {
			if n, value, ok := strings.Cut(line, "="); ok && n == name {
				return value, true
			}
		}
		return "", false
	}
}
