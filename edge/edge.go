package edge

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of FromEnvironment. The zero value of each field means its default.
type Options struct {
	// LookupEnv returns a variable of the environment. Nil: os.LookupEnv.
	LookupEnv func(name string) (value string, ok bool)
	// Dial connects to the daemon: with network "unix" and a path, or "tcp" and "host:port". It must
	// return when ctx ends. A *transport.Error or transport.Kind that it returns keeps its Kind; any
	// other error is Network. Nil: netopt.Direct.
	Dial netopt.DialFunc
	// Timeout limits each call of the daemon, with the connection to it. Default 20 s, which is less
	// than the default of device.Options.DialTimeout.
	Timeout time.Duration
}

const defaultTimeout = 20 * time.Second

// Module is a module of an edge device, as FromEnvironment finds it. Its fields may be changed
// before they are given to a client or transport. They may serve several clients at the same time.
type Module struct {
	// Credentials name the module, its hub and its gateway, and sign its tokens.
	Credentials *transport.Credentials
	// Network has the roots that verify the gateway, as RootCAs. All other fields have their defaults.
	Network netopt.Options
}

// FromEnvironment returns the module whose process this is. Of these ways it takes the first one
// that is set:
//
//	EdgeHubConnectionString    a module's connection string with GatewayHostName, for debugging
//	IotHubConnectionString     a module's connection string, for debugging
//	IOTEDGE_...                what the runtime sets
//
// With a connection string that has GatewayHostName, EdgeModuleCACertificateFile may name a file
// with the roots that verify the gateway, in PEM. The variables of the runtime are:
//
//	IOTEDGE_WORKLOADURI          the daemon: unix:///path or http://host:port
//	IOTEDGE_IOTHUBHOSTNAME       the hub
//	IOTEDGE_GATEWAYHOSTNAME      the gateway to connect to; optional: else the hub
//	IOTEDGE_DEVICEID             the edge device
//	IOTEDGE_MODULEID             the module
//	IOTEDGE_MODULEGENERATIONID   the generation of the module's identity
//	IOTEDGE_AUTHSCHEME           sasToken, in any letter case
//	IOTEDGE_APIVERSION           the version of the daemon's API; optional: 2018-06-28
//
// A variable with nothing but white space counts as missing. The error is a *transport.Error of
// Kind Invalid that names all missing and wrong variables; it shows no secret. FromEnvironment
// connects to nothing: a daemon or gateway that is not there yet is a matter of the client's
// retries.
//
// Nil options mean all defaults.
func FromEnvironment(o *Options) (*Module, error) {
	set, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &environment{lookup: set.LookupEnv}
	for _, name := range []string{varEdgeHubString, varHubString} {
		if text := e.value(name); text != "" {
			return fromConnectionString(e, name, text)
		}
	}
	return fromRuntime(e, &set)
}

func (o *Options) withDefaults() (Options, error) {
	var set Options
	if o != nil {
		set = *o
	}
	if set.LookupEnv == nil {
		set.LookupEnv = os.LookupEnv
	}
	if set.Dial == nil {
		set.Dial = netopt.Direct
	}
	switch {
	case set.Timeout < 0:
		return set, invalid("options: Timeout is negative; give a positive duration, or 0 for " + defaultTimeout.String())
	case set.Timeout == 0:
		set.Timeout = defaultTimeout
	}
	set.Timeout = times.Cap(set.Timeout)
	return set, nil
}

// fromRuntime returns the module that the runtime's variables describe.
func fromRuntime(e *environment, set *Options) (*Module, error) {
	w := &workload{
		module: e.id(varModule), generation: e.required(varGeneration), version: e.apiVersion(),
		dial: set.Dial, timeout: set.Timeout,
	}
	m := &Module{Credentials: &transport.Credentials{
		Host: e.host(varHub, e.required(varHub)), GatewayHost: e.host(varGateway, e.value(varGateway)),
		DeviceID: e.id(varDevice), ModuleID: w.module, Sign: w.sign,
	}}
	w.endpoint = e.endpoint()
	e.checkScheme()
	if err := e.err(); err != nil {
		return nil, err
	}
	if m.Credentials.GatewayHost != "" {
		m.Network.RootCAs = newTrust(w.trustBundle).roots
	}
	return m, nil
}

// fromConnectionString returns the module of the connection string in the variable called name.
func fromConnectionString(e *environment, name, text string) (*Module, error) {
	creds, err := parseModuleString(name, text)
	if err != nil {
		return nil, err
	}
	m := &Module{Credentials: creds}
	if file := e.value(varCAFile); file != "" && creds.GatewayHost != "" {
		t := newTrust(func(context.Context) (*x509.CertPool, error) { return readBundle(file) })
		if _, err := t.roots(context.Background(), nil); err != nil {
			return nil, invalid(varCAFile + ": " + err.Error())
		}
		m.Network.RootCAs = t.roots
	}
	return m, nil
}

func invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpOpen, Err: errors.New("edge: " + text)}
}
