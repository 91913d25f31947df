package target

import "github.com/spf13/pflag"

// Flags are the flags by which a command names its device and service.
type Flags struct {
	// Connect is a connection string or a broker's URL on the command line, which is refused unless
	// OnCommandLine is set.
	Connect       string
	OnCommandLine bool
	// File has a connection string or a broker's URL.
	File string

	// Testhub is the id of a device of the testhub at HUB.
	Testhub string

	// IDScope and RegistrationID name a registration with the provisioning service at DPS, which has
	// the key in KeyFile, or one derived from the key in GroupKeyFile.
	IDScope, RegistrationID, DPS, KeyFile, GroupKeyFile string
	// Registering: the command does nothing else, so an unnamed address is the provisioning service's.
	Registering bool

	// Transport is the name of one of Transports. Empty: the first that the target has.
	Transport string
	// Dialect is the name of one of Dialects. Empty: the broker is none of them.
	Dialect string
	// ALPN is the name to offer in TLS's protocol negotiation. Empty: that of Dialect, or none.
	ALPN string
	// Addresses are "host:port", or "name=host:port" for one of the transports.
	Addresses []string
	// ModelID is the Plug and Play model that the device announces to a hub. Empty: none.
	ModelID string
	// CA, Cert and CertKey are files in PEM.
	CA, Cert, CertKey string
	NoProxy           bool
}

// Register adds the flags to a command's.
func (f *Flags) Register(s *pflag.FlagSet) {
	s.StringVar(&f.File, "connect-file", "", "`FILE` with the device's connection string, or with a broker's URL")
	s.StringVar(&f.Connect, "connect", "", "`URL` of a broker without a password; anything else is refused: see "+
		"hubline help credentials")
	s.BoolVar(&f.OnCommandLine, "insecure-command-line", false, "allow a secret in -connect")
	s.StringVar(&f.Testhub, "testhub", "", "be this `DEVICE` of the testhub whose control API is at $HUB")
	s.StringVar(&f.IDScope, "id-scope", "", "`SCOPE` of the provisioning service that knows the device's hub")
	s.StringVar(&f.RegistrationID, "registration-id", "", "`ID` under which the device registers")
	s.StringVar(&f.DPS, "dps", "", "`HOST` of the provisioning service, instead of the global one")
	s.StringVar(&f.KeyFile, "key-file", "", "`FILE` with the key of the registration")
	s.StringVar(&f.GroupKeyFile, "group-key-file", "", "`FILE` with the key of the group that the registration belongs to")
	s.StringVar(&f.Transport, "transport", "", "`NAME` of the transport; see hubline help transports")
	s.StringVar(&f.Dialect, "dialect", "", "the broker is the `SERVICE` aws-iot or event-grid, and what exceeds its "+
		"limits is not sent")
	s.StringVar(&f.ALPN, "alpn", "", "`PROTOCOL` to offer to a broker in TLS (ALPN), for ports that several protocols "+
		"share; -dialect aws-iot has its own at port 443")
	s.StringVar(&f.ModelID, "model-id", "", "`DTMI` of the Plug and Play model that the device announces to its hub")
	s.StringArrayVar(&f.Addresses, "address", nil, "connect to `HOST:PORT` instead; NAME=HOST:PORT for one transport, "+
		"and dps=HOST:PORT for the provisioning service")
	s.StringVar(&f.CA, "ca", "", "`FILE` with the certificates to trust instead of the system's")
	s.StringVar(&f.Cert, "cert", "", "`FILE` with the device's certificate, and with those that signed it")
	s.StringVar(&f.CertKey, "cert-key", "", "`FILE` with the key of -cert")
	s.BoolVar(&f.NoProxy, "no-proxy", false, "connect directly, whatever HTTPS_PROXY says")
}
