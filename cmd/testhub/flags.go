package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/testbroker"
)

// defaultKeep is enough for most tests, and small enough to run for days: with messages of 100
// bytes it takes about 90 MB of heap.
const defaultKeep = 100_000

// off is the flag value that disables an address.
const off = "off"

// settings are the parsed command line.
type settings struct {
	host string
	ports
	control string
	// freeControl lets the control API have a free port if its own is taken.
	freeControl bool
	token       string // of the control API; empty: it needs none
	ca          string
	env         string
	file        string
	seed        uint64
	keep        int
	json        bool
	verbose     bool
	broker      bool
	health      string
	strict      bool
	config      configSettings
	devices     []entry // from the flags -device and -x509
	state       stateSettings
	certs       certSettings
	dps         dpsSettings
	updates     updateSettings
	edge        edgeSettings
	profile     profileSettings
	events      eventsSettings
	limits      limitSettings
}

// parse parses the command line. It has printed the error to stderr; for flag.ErrHelp it has
// printed the help.
func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	var free bool
	f := flag.NewFlagSet("testhub", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the package prints the whole help after each error
	f.StringVar(&s.host, "host", "localhost", "the hub's `name` in connection strings, tokens and its certificate")
	s.flags(f, "", "", "127.0.0.1")
	f.BoolVar(&free, "free", false, "use free ports where no address is given, instead of those of the service")
	f.StringVar(&s.control, "control", "", "`address` of the control API and its page, or off; one that is not on "+
		"loopback needs a -control-token (default 127.0.0.1:8880, or a free port if that is taken)")
	f.StringVar(&s.token, "control-token", "", "the `token` that requests to the control API must have (default: "+
		"one is made if -control is not on loopback)")
	f.StringVar(&s.ca, "ca", "testhub-ca.pem", "`file` to write the certificate to that clients must trust; it is a new "+
		"one at each start, unless there is a -seed")
	f.StringVar(&s.env, "env", "", "`file` to write HUB and HUBLINE_CONNECTION_STRING to, of the control API and the "+
		"first device, for a shell to read")
	f.StringVar(&s.file, "devices", "", "JSON `file` of devices, see README.md")
	f.Uint64Var(&s.seed, "seed", 0, "make keys, the certificate of -ca and draws of faults repeat from run to run; such "+
		"keys are no secret (default 0: random)")
	f.IntVar(&s.keep, "keep", defaultKeep,
		"keep this `number` of the newest messages, and of entries of each other log; 0 keeps all")
	f.BoolVar(&s.broker, "broker", false, "serve MQTT as a plain broker, with MQTT 3.1.1 and 5 on topics of its own, "+
		"instead of the service's; print URLs for its devices")
	f.BoolVar(&s.strict, "strict-types", false, "refuse telemetry over AMQP with properties that are no strings, or "+
		"with a body that is no data section")
	f.StringVar(&s.health, "health", "", "do not start: ask the testhub with the control API at this `URL` whether it is "+
		"healthy, and exit with 0 or 1")
	f.BoolVar(&s.json, "json", false, "print JSON, one object a line")
	f.BoolVar(&s.verbose, "v", false, "print all addresses, and the strings for back ends, at the start")
	s.config.flags(f)
	s.certs.flags(f)
	s.state.flags(f)
	s.dps.flags(f)
	s.updates.flags(f)
	s.edge.flags(f)
	s.profile.flags(f)
	s.events.flags(f)
	s.limits.flags(f)
	f.Func("device", "register a device `id`, or a module device/module, with new keys; repeatable (default dev-1 if "+
		"there is none at all)", func(id string) error {
		s.devices = append(s.devices, entry{id: id, from: "flag -device"})
		return nil
	})
	f.Func("x509", "register a device `id=thumbprint[,thumbprint]` that proves who it is by a certificate; repeatable",
		func(v string) error {
			id, prints, ok := strings.Cut(v, "=")
			if !ok || id == "" || prints == "" {
				return errors.New("want id=thumbprint, or id=thumbprint,thumbprint")
			}
			s.devices = append(s.devices, entry{id: id, thumbprints: strings.Split(prints, ","), from: "flag -x509"})
			return nil
		})
	all := record(f)
	err := func() error {
		if err := f.Parse(args); err != nil {
			return explained(err, f)
		}
		if f.NArg() > 0 {
			return fmt.Errorf("argument %q: testhub has flags only; -h lists them", f.Arg(0))
		}
		if err := noneEmpty(f); err != nil {
			return err
		}
		if err := s.config.read(f); err != nil {
			return err
		}
		if err := s.complete(free); err != nil {
			return err
		}
		s.config.inForce = all.inForce()
		return nil
	}()
	switch {
	case errors.Is(err, flag.ErrHelp):
		all.help(stderr)
	case err != nil:
		fmt.Fprintln(stderr, "testhub:", err)
	}
	return s, err
}

// notEmpty are the flags whose empty value comes from a variable that is not set: a health check
// would start a hub, and a hub would forget.
var notEmpty = []string{"authority", "config", "devices", "health", "state", "updates"}

func noneEmpty(f *flag.FlagSet) (err error) {
	f.Visit(func(fl *flag.Flag) {
		if fl.Value.String() == "" && slices.Contains(notEmpty, fl.Name) {
			err = fmt.Errorf("flag -%s: it is empty; give a value, or leave the flag out", fl.Name)
		}
	})
	return err
}

// explained adds to an error of package flag what helps.
func explained(err error, f *flag.FlagSet) error {
	if errors.Is(err, flag.ErrHelp) {
		return err
	}
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return fmt.Errorf("%w; -h describes the flag", err)
	}
	var names []string
	f.VisitAll(func(fl *flag.Flag) { names = append(names, fl.Name) })
	return fmt.Errorf("flag -%s: there is none; %s-h lists them all", name, texts.NearestFlag(name, names))
}

// complete sets the default addresses and checks the settings as far as possible without opening
// anything.
func (s *settings) complete(free bool) error {
	if err := s.addresses("", "127.0.0.1", free); err != nil {
		return err
	}
	s.dps.on = s.dps.on || s.updates.dir != ""
	if err := s.dps.complete(s.host, free); err != nil {
		return err
	}
	if err := s.state.complete(); err != nil {
		return err
	}
	if err := s.profile.complete(s); err != nil {
		return err
	}
	if err := s.edge.complete(s.broker, s.profile.mqttv5); err != nil {
		return err
	}
	if err := s.limits.complete(s.broker); err != nil {
		return err
	}
	if err := checkAddress("events", s.events.addr); err != nil {
		return err
	}
	if s.events.options.Partitions == 0 { // which means the default elsewhere
		return errors.New("flag -partitions: there are none; give a number from 1 to 32")
	}
	if s.keep < 0 {
		return fmt.Errorf("flag -keep: %d is negative; give how many messages to keep, or 0 for all", s.keep)
	}
	if s.ca == "" {
		return errors.New("flag -ca: the name is empty; give a file, clients cannot do without the certificate")
	}
	return s.completeControl(free)
}

// ports are the addresses of the ports of a hub or a provisioning service: host:port, or off.
type ports struct {
	mqtt, amqp, https string
	chosen            []string // names of those that the command line does not give
}

// all returns the addresses with their flags, without prefix, and their ports at the service.
func (p *ports) all() []portFlag {
	return []portFlag{
		{"mqtt", &p.mqtt, testbroker.PortMQTTS, "8883"}, {"amqp", &p.amqp, testbroker.PortAMQPS, "5671"},
		{"https", &p.https, testbroker.PortHTTPS, "443"},
	}
}

type portFlag struct {
	name   string
	addr   *string
	port   testbroker.Port
	number string
}

// flags registers the flags of the ports. of says whose they are; empty: the hub's.
func (p *ports) flags(f *flag.FlagSet, prefix, of, host string) {
	for i, protocol := range []string{"MQTT over TLS", "AMQP over TLS", "HTTPS and WebSocket"} {
		at := p.all()[i]
		f.StringVar(at.addr, prefix+at.name, "", fmt.Sprintf("`address` for %s%s, or off (default %s:%s)", protocol, of, host,
			at.number))
	}
}

// addresses sets the default addresses and checks all.
func (p *ports) addresses(prefix, host string, free bool) error {
	for _, at := range p.all() {
		number := at.number
		if free {
			number = "0"
		}
		if *at.addr == "" {
			*at.addr = net.JoinHostPort(host, number)
			p.chosen = append(p.chosen, at.name)
		}
		if err := checkAddress(prefix+at.name, *at.addr); err != nil {
			return err
		}
	}
	return nil
}

func checkAddress(name, addr string) error {
	if addr == off {
		return nil
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("flag -%s: %q is not an address; give host:port such as 127.0.0.1:0 (a free port), or off", name,
			addr)
	}
	return nil
}

// isLoopback reports whether a host is reachable only from this machine. Names other than localhost
// are not resolved.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// A misuse is a value of a flag that only the hub knows to be wrong. The program ends with the
// status of a wrong command line.
type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

func misused(format string, args ...any) error { return misuse{fmt.Errorf(format, args...)} }
