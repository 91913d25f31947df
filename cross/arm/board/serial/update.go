//go:build tinygo && update

package main

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"math/big"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsengine"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/hubline-iot/hubline/update"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
	"github.com/hubline-iot/hubline/update/handler"
	"github.com/hubline-iot/hubline/update/httprange"
)

// Set by the linker: the provisioning service, the identity, the number of this image, and the root
// keys of the update service, as "id:modulus,id:modulus" in Base64 for URLs.
var host, scope, deviceID, key, version, roots string

// main is an image that keeps itself up to date: it asks the provisioning service for updates, and
// starts the new image by a reset.
func main() {
	line.start()
	println("image", version)
	modem := board.NewModem(&line)
	for !modem.SetClock(2 * time.Second) {
		println("no time from the modem")
	}
	err := run(modem)
	println("ended", err.Error())
	deepSleep(0)
}

func run(modem *board.Modem) error {
	number, err := strconv.Atoi(version)
	if err != nil {
		return err
	}
	net := &network{modem: modem}
	client, err := provisioning.New(&provisioning.Identity{Endpoint: host, IDScope: scope, RegistrationID: deviceID,
		Sign: board.Signer(board.Key(key)), Now: modem.Now}, dpsengine.New(net.service, nil), nil)
	if err != nil {
		return err
	}
	service, err := dpsupdate.New(client, nil)
	if err != nil {
		return err
	}
	store, err := update.NewStore(norFlash{}, agentArea)
	if err != nil {
		return err
	}
	keyStore, err := update.NewStore(norFlash{}, keysArea)
	if err != nil {
		return err
	}
	keys, err := adusign.NewKeys(&adusign.KeysOptions{Roots: rootKeys(), Store: keyStore})
	if err != nil {
		return err
	}
	updater, err := update.Open(&update.Options{Layout: layout, Version: uint32(number),
		OnStatus: func(s update.Status) { println("slot", s.Phase.String(), "done", s.Done) }})
	if err != nil {
		return err
	}
	slots := &handler.Slots{Updater: updater, Healthy: func(ctx context.Context) error {
		_, err := client.Register(ctx)
		return err
	}}
	a, err := agent.New(&agent.Options{
		Service: service, Handlers: map[string]agent.Handler{"": slots}, Verify: keys.Verify,
		RootKeys: keys.Update, Fetch: &httprange.Fetcher{Dial: net.files}, Store: store, Interval: time.Minute, Spread: -1,
		Properties: agent.Properties{{Name: "manufacturer", Value: "Contoso"}, {Name: "model", Value: "Sensor"}},
		OnStatus: func(s agent.Status) {
			tell(s)
			if s.Phase == agent.PhaseIdle {
				client.CloseIdle() // the modem has one connection
			}
		},
	})
	if err != nil {
		return err
	}
	return a.Run(context.Background())
}

// rootKeys reads the root keys.
func rootKeys() adusign.Roots {
	all := adusign.Roots{}
	for _, root := range strings.Split(roots, ",") {
		id, modulus, _ := strings.Cut(root, ":")
		n, err := base64.RawURLEncoding.DecodeString(modulus)
		if err == nil {
			all[id] = &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: 65537}
		}
	}
	return all
}

func tell(s agent.Status) {
	runtime.GC() // so that the report counts only live memory
	runtime.ReadMemStats(&memory)
	println("phase", s.Phase.String(), "unsent", s.Unsent, "heap", memory.HeapInuse, "of", memory.HeapSys)
	if s.Err != nil {
		println("because", s.Err.Error())
	}
}

var memory runtime.MemStats

// network shares the modem, which has one connection at a time: a new one ends the one before.
type network struct {
	modem *board.Modem
	mu    sync.Mutex
	conn  engine.Conn // the latest, nil: none
}

func (n *network) service(ctx context.Context, creds *transport.Credentials) (engine.Conn, error) {
	return n.dial(ctx, creds.Host)
}

// files asks for a connection with TLS or without it by the beginning of the name.
func (n *network) files(ctx context.Context, host string, secure bool) (httprange.Conn, error) {
	if secure {
		return n.dial(ctx, "https:"+host)
	}
	return n.dial(ctx, "http:"+host)
}

func (n *network) dial(ctx context.Context, name string) (engine.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conn != nil {
		_ = n.conn.Close()
	}
	var err error
	n.conn, err = n.modem.DialTo(ctx, name)
	return n.conn, err
}
