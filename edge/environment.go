package edge

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// The variables of a module's environment.
const (
	varEdgeHubString = "EdgeHubConnectionString"
	varHubString     = "IotHubConnectionString"
	varCAFile        = "EdgeModuleCACertificateFile"

	varWorkload   = "IOTEDGE_WORKLOADURI"
	varHub        = "IOTEDGE_IOTHUBHOSTNAME"
	varGateway    = "IOTEDGE_GATEWAYHOSTNAME"
	varDevice     = "IOTEDGE_DEVICEID"
	varModule     = "IOTEDGE_MODULEID"
	varGeneration = "IOTEDGE_MODULEGENERATIONID"
	varScheme     = "IOTEDGE_AUTHSCHEME"
	varVersion    = "IOTEDGE_APIVERSION"
)

const (
	defaultVersion = "2018-06-28"
	tokenScheme    = "sasToken"
	// maxShown bounds the length of a value in an error.
	maxShown = 64
)

// environment reads variables and collects what is wrong with them.
type environment struct {
	lookup  func(string) (string, bool)
	missing []string // names of variables
	wrong   []string // texts that name a variable
}

// value returns a variable without surrounding white space, empty if it is not set.
func (e *environment) value(name string) string {
	v, _ := e.lookup(name)
	return strings.TrimSpace(v)
}

func (e *environment) required(name string) string {
	v := e.value(name)
	if v == "" {
		e.missing = append(e.missing, name)
	}
	return v
}

// reject records that a variable has a wrong value.
func (e *environment) reject(name, value, why string) {
	if len(value) > maxShown {
		value = value[:maxShown] + "..."
	}
	e.wrong = append(e.wrong, name+" is "+strconv.Quote(value)+", "+why)
}

func (e *environment) host(name, v string) string {
	if v != "" && (&transport.Credentials{Host: v, DeviceID: "d"}).Validate() != nil {
		e.reject(name, v, "which is not a host name; give letters, digits, '-', '_' and '.' only")
	}
	return v
}

func (e *environment) id(name string) string {
	v := e.required(name)
	if v != "" && (&transport.Credentials{Host: "h", DeviceID: v}).Validate() != nil {
		e.reject(name, v, "which is not a valid id; give 1 to 128 ASCII letters, digits and "+
			"- . + % _ # * ? ! ( ) , : = @ $ '")
	}
	return v
}

func (e *environment) checkScheme() {
	if v := e.required(varScheme); v != "" && !strings.EqualFold(v, tokenScheme) {
		e.reject(varScheme, v, "and only "+tokenScheme+" is supported")
	}
}

// apiVersion returns the version of the daemon's API: a date, which may have a suffix such as
// "-preview".
func (e *environment) apiVersion() string {
	v := e.value(varVersion)
	if v == "" {
		return defaultVersion
	}
	date, suffix := v, ""
	if len(v) > len(time.DateOnly) {
		date, suffix = v[:len(time.DateOnly)], v[len(time.DateOnly):]
	}
	_, err := time.Parse(time.DateOnly, date)
	if err != nil || suffix != "" && suffix[0] != '-' || strings.ContainsFunc(suffix, notInSuffix) {
		e.reject(varVersion, v, "which is not a version; give a date such as "+defaultVersion)
	}
	return v
}

func notInSuffix(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
}

// endpoint is an address of the daemon.
type endpoint struct {
	network, addr string // to dial
	host          string // in requests
	base          string // comes before the path of each call, escaped
}

// endpoint parses the daemon's address.
func (e *environment) endpoint() (p endpoint) {
	v := e.required(varWorkload)
	if v == "" {
		return p
	}
	u, err := url.Parse(v)
	switch {
	case err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "":
	case u.Scheme == "unix" && u.Host == "" && len(u.Path) > 1:
		return endpoint{network: "unix", addr: u.Path, host: "localhost"}
	case u.Scheme == "http" && u.Hostname() != "":
		port := cmp.Or(u.Port(), "80")
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			break
		}
		return endpoint{network: "tcp", addr: net.JoinHostPort(u.Hostname(), port), host: u.Host,
			base: strings.TrimSuffix(u.EscapedPath(), "/")}
	}
	e.wrong = append(e.wrong, varWorkload+" is not unix:///path or http://host:port") // it may contain a password
	return p
}

// err returns what is wrong with the variables that were read.
func (e *environment) err() error {
	var texts []string
	switch len(e.missing) {
	case 0:
	case 1:
		texts = append(texts, e.missing[0]+" is not set")
	default:
		texts = append(texts, strings.Join(e.missing, ", ")+" are not set")
	}
	texts = append(texts, e.wrong...)
	if len(texts) == 0 {
		return nil
	}
	return invalid("environment: " + strings.Join(texts, "; ") + "; the IoT Edge runtime sets these variables for its " +
		"modules: run the program as a module, or set " + varEdgeHubString + " to debug it elsewhere")
}

// parseModuleString parses the connection string in the variable called name.
func parseModuleString(name, text string) (*transport.Credentials, error) {
	creds, err := device.ParseConnectionString(text)
	if err != nil {
		cause := err
		if e := transport.Find(err); e != nil {
			cause = e.Err
		}
		return nil, invalid(name + ": " + cause.Error())
	}
	if creds.ModuleID == "" {
		return nil, invalid(name + ": ModuleId is missing, so the string is a device's; take the module's own, from the " +
			"page of the module in the portal")
	}
	return creds, nil
}

// errNoCertificate is the error of a bundle without any.
var errNoCertificate = errors.New("no certificate in it")
