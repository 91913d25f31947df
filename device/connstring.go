package device

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// The keys of a connection string, in the order in which check reports missing or wrong ones.
const (
	keyHostName = iota
	keyDeviceID
	keyModuleID
	keyGatewayHostName
	keySharedAccessKey
	keySharedAccessKeyName
	keySharedAccessSignature
	keyX509

	connKeyCount // the number of keys
)

var connKeyNames = [connKeyCount]string{
	keyHostName: "HostName", keyDeviceID: "DeviceId", keyModuleID: "ModuleId", keyGatewayHostName: "GatewayHostName",
	keySharedAccessKey: "SharedAccessKey", keySharedAccessKeyName: "SharedAccessKeyName",
	keySharedAccessSignature: "SharedAccessSignature", keyX509: "x509",
}

// foreignKeys are keys of other kinds of connection strings that users paste by mistake, and
// misspelled forms of the keys above.
var foreignKeys = [...]struct{ name, advice string }{
	{"Endpoint", "this is an Event Hubs or Service Bus string; " + whereDeviceStrings},
	{"EntityPath", "this is an Event Hubs string; " + whereDeviceStrings},
	{"AccountKey", "this is a storage account's string; " + whereDeviceStrings},
	{"AccountName", "this is a storage account's string; " + whereDeviceStrings},
	{"DefaultEndpointsProtocol", "this is a storage account's string; " + whereDeviceStrings},
	{"X509Cert", "write x509=true; certificate and key go into the transport's TLS options"},
	{"Host", "write HostName"},
	{"Hub", "write HostName"},
	{"Device", "write DeviceId"},
	{"Module", "write ModuleId"},
	{"Gateway", "write GatewayHostName"},
	{"GatewayHost", "write GatewayHostName"},
	{"Key", "write SharedAccessKey"},
	{"PrimaryKey", "write SharedAccessKey"},
	{"SecondaryKey", "write SharedAccessKey"},
	{"Policy", "write SharedAccessKeyName"},
	{"PolicyName", "write SharedAccessKeyName"},
	{"Token", "write SharedAccessSignature"},
	{"SasToken", "write SharedAccessSignature"},
}

const whereDeviceStrings = "take the device's own: on the hub's page under Devices, or from `az iot hub " +
	"device-identity connection-string show`"

// connValues holds the value of each key, empty if the key is not in the string.
type connValues [connKeyCount]string

// ParseConnectionString parses the connection string of a device or module as a hub shows it:
// KEY=VALUE pairs separated by ';', in any order, keys in any case. It strips space and quotation
// marks around the string, and space around keys and values.
//
//	HostName, DeviceId      required
//	ModuleId                for a module
//	SharedAccessKey         a key in base64; each connection signs a fresh token with it
//	SharedAccessSignature   a token made elsewhere, sent unchanged; Unauthorized once it has expired
//	x509=true               a certificate, given in the transport's TLS options
//	SharedAccessKeyName     the hub policy that SharedAccessKey belongs to
//	GatewayHostName         dialed instead of HostName; a name without port
//
// Exactly one of SharedAccessKey, SharedAccessSignature and x509=true is required.
//
// The error is a *transport.Error of Kind Invalid that names the key and the fix. It never contains
// a value, because a value may be a misplaced key. The clock of the returned Credentials decides
// whether SharedAccessSignature has expired, also when that clock is set later.
func ParseConnectionString(s string) (*transport.Credentials, error) {
	v, err := splitConnString(s)
	if err != nil {
		return nil, err
	}
	if err := v.check(); err != nil {
		return nil, err
	}
	c := &transport.Credentials{
		Host: v[keyHostName], GatewayHost: v[keyGatewayHostName], DeviceID: v[keyDeviceID], ModuleID: v[keyModuleID],
		KeyName: v[keySharedAccessKeyName],
	}
	switch {
	case v[keySharedAccessKey] != "":
		c.Sign, err = readSharedKey(v[keySharedAccessKey])
	case v[keySharedAccessSignature] != "":
		c.Token, err = fixedToken(c, v[keySharedAccessSignature])
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// splitConnString splits s into pairs and stores their values by key.
func splitConnString(s string) (v connValues, err error) {
	s, whole := texts.Unquote(s)
	if !whole {
		return v, badConnString("it begins with a quotation mark and does not end with one; copy it whole")
	}
	if s == "" {
		return v, badConnString("it is empty; " + whereDeviceStrings)
	}
	s = strings.TrimSuffix(s, ";")
	for number, more := 1, true; more; number++ {
		var pair string
		pair, s, more = strings.Cut(s, ";")
		where := "pair " + strconv.Itoa(number)
		name, value, found := strings.Cut(pair, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		key := connKey(name)
		switch {
		case strings.TrimSpace(pair) == "":
			return v, badConnString(where + " is empty; leave one ';' between pairs")
		case hasPrefixFold(name, "SharedAccessSignature "):
			return v, badConnString(where + " is a bare token; write SharedAccessSignature= before it")
		case !found && key >= 0:
			return v, badConnString(connKeyNames[key] + " has no '=' behind it; write " + connKeyNames[key] + "=VALUE")
		case !found:
			return v, badConnString(where + " has no '='; write KEY=VALUE pairs with ';' between them")
		case key < 0:
			return v, badConnString(where + unknownKey(name))
		case value == "":
			return v, badConnString(connKeyNames[key] + " has no value; give one, or leave the key out")
		case v[key] != "":
			return v, badConnString(connKeyNames[key] + " is given twice; leave one")
		}
		v[key] = value
	}
	return v, nil
}

// connKey returns the index of the key called name, -1 if there is none.
func connKey(name string) int {
	for i, known := range connKeyNames {
		if texts.EqualFold(name, known) {
			return i
		}
	}
	return -1
}

// unknownKey describes a wrong key and suggests the likely one. It shows a name only if that cannot
// be a misplaced secret.
func unknownKey(name string) string {
	for _, f := range foreignKeys {
		if texts.EqualFold(name, f.name) {
			return " has the key " + f.name + "; " + f.advice
		}
	}
	for _, known := range connKeyNames {
		if texts.OneEditApart(name, known) {
			return " has an unknown key; did you mean " + known + "?"
		}
	}
	const shortestSecret = 22 // 16 bytes in base64, without '='
	text := " has an unknown key"
	if name == "" {
		text = " has no key before its '='"
	} else if len(name) < shortestSecret && strings.IndexFunc(name, notLetter) < 0 {
		text += ", " + name
	}
	return text + "; known are " + strings.Join(connKeyNames[:], ", ")
}

func notVisible(r rune) bool { return r <= ' ' || r >= 0x7f }

func notLetter(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }

// check validates the values and their combination. It does not parse the key or the token.
func (v *connValues) check() error {
	switch {
	case v[keyDeviceID] == "" && v[keyModuleID] == "" && v[keySharedAccessKeyName] != "":
		return badConnString("DeviceId is missing: this is a service's string, for the hub and not for one device; " +
			whereDeviceStrings)
	case v[keyHostName] == "":
		return badConnString("HostName is missing; add HostName=YOURHUB.azure-devices.net")
	case v[keyDeviceID] == "":
		return badConnString("DeviceId is missing; add DeviceId=YOUR-DEVICE (and put the string in quotation marks for a " +
			"shell, or it ends at the first ';')")
	}
	for _, key := range [...]int{keyHostName, keyGatewayHostName} {
		if v[key] == "" || (&transport.Credentials{Host: v[key], DeviceID: "d"}).Validate() == nil {
			continue
		}
		text := " is not a host name; give letters, digits, '-', '_' and '.' only"
		if strings.Contains(v[key], "://") {
			text = " has a scheme; give the name alone, without what stands up to ://"
		} else if name, port, _ := strings.Cut(v[key], ":"); name != "" && allDigits(port) {
			text = " has a port; give the name alone, and set the port in the transport's options"
		}
		return badConnString(connKeyNames[key] + text)
	}
	for _, key := range [...]int{keyDeviceID, keyModuleID} {
		if v[key] != "" && (&transport.Credentials{Host: "h", DeviceID: v[key]}).Validate() != nil {
			return badConnString(connKeyNames[key] + " is not a valid id; use 1 to 128 ASCII letters, digits and - . + % _ # " +
				"* ? ! ( ) , : = @ $ '")
		}
	}

	certificate := texts.EqualFold(v[keyX509], "true")
	if v[keyX509] != "" && !certificate && !texts.EqualFold(v[keyX509], "false") {
		return badConnString("x509 is neither true nor false; write x509=true if the device has a certificate")
	}
	proofs := 0
	for _, given := range [...]bool{v[keySharedAccessKey] != "", v[keySharedAccessSignature] != "", certificate} {
		if given {
			proofs++
		}
	}
	switch {
	case proofs == 0:
		return badConnString("it has no proof of identity; add one of SharedAccessKey, SharedAccessSignature and x509=true")
	case proofs > 1:
		return badConnString("it has more than one proof of identity; leave one of SharedAccessKey, SharedAccessSignature " +
			"and x509=true")
	case v[keySharedAccessKeyName] != "" && v[keySharedAccessKey] == "":
		return badConnString("SharedAccessKeyName says whose key SharedAccessKey is, and there is no SharedAccessKey; " +
			"leave the name out")
	}
	return nil
}

func readSharedKey(value string) (func(context.Context, []byte) ([]byte, error), error) {
	key, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return nil, badConnString("SharedAccessKey is not base64; copy it whole, with its '=' at the end")
	}
	if n := len(key); n < 16 || n > 64 {
		return nil, badConnString("SharedAccessKey has " + strconv.Itoa(n) + " bytes, and keys have 16 to 64; copy it whole")
	}
	return transport.SharedKey(value)
}

// lastExpiry is the end of the year 9999 in seconds since 1970. A later expiry was given in another
// unit.
const lastExpiry = 253402300799

// fixedToken returns a token source for a token that cannot be renewed.
func fixedToken(c *transport.Credentials, text string) (func(context.Context) (transport.Token, error), error) {
	const scheme = "SharedAccessSignature "
	if !strings.HasPrefix(text, scheme) {
		return nil, badConnString("SharedAccessSignature does not begin with \"SharedAccessSignature \" and its fields; " +
			"copy the token whole")
	}
	if strings.IndexFunc(text[len(scheme):], notVisible) >= 0 {
		return nil, badConnString("SharedAccessSignature has a space, a line end or a letter outside ASCII among its " +
			"fields; copy the token in one piece")
	}
	var sr, sig, se string
	for rest, more := text[len(scheme):], true; more; {
		var field string
		field, rest, more = strings.Cut(rest, "&")
		name, value, _ := strings.Cut(field, "=")
		switch {
		case texts.EqualFold(name, "sr"):
			sr = value
		case texts.EqualFold(name, "sig"):
			sig = value
		case texts.EqualFold(name, "se"):
			se = value
		}
	}
	for _, f := range [...]struct {
		name, value string
	}{{"sr (resource)", sr}, {"sig (signature)", sig}, {"se (expiry)", se}} {
		if f.value == "" {
			return nil, badConnString("SharedAccessSignature lacks " + f.name + "; copy the token whole")
		}
	}
	seconds, err := strconv.ParseInt(se, 10, 64)
	if err != nil || !allDigits(se) || seconds > lastExpiry {
		return nil, badConnString("SharedAccessSignature has an expiry (se) that is not a time in seconds since 1970; make " +
			"a new token")
	}
	if !opens(sr, c) {
		return nil, badConnString("SharedAccessSignature is for another hub, device or module than HostName, DeviceId and " +
			"ModuleId name; make one for these")
	}

	token := transport.Token{Text: transport.Hide(text), Expires: time.Unix(seconds, 0), Fixed: true}
	expired := &transport.Error{
		Kind: transport.Unauthorized, Scope: transport.ScopeConnection, Op: transport.OpDial,
		Err: errors.New("the connection string's SharedAccessSignature expired at " + token.Expires.UTC().Format(
			time.RFC3339) + "; get a new one"),
	}
	return func(context.Context) (transport.Token, error) {
		if c.Time().After(token.Expires) {
			return transport.Token{}, expired
		}
		return token, nil
	}, nil
}

// opens reports whether a token for the resource sr is valid for c: it names c's hub, device and
// module, or leaves out some of these at the end. sr is percent-encoded once or (one SDK does that
// to ids) twice.
func opens(sr string, c *transport.Credentials) bool {
	for range 2 {
		plain, ok := texts.AppendUnescaped(nil, sr)
		if !ok {
			return false
		}
		sr = string(plain)
		host, path, _ := strings.Cut(sr, "/")
		own := c.Resource()[len(c.Host)+1:]
		if texts.EqualFold(host, c.Host) && strings.HasPrefix(own+"/", path+"/") || texts.EqualFold(sr, c.Host) {
			return true
		}
	}
	return false
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && texts.EqualFold(s[:len(prefix)], prefix)
}

// allDigits reports whether s consists of digits only.
func allDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// badConnString returns the error for a wrong connection string. Inlined, it would take 6 KB of a
// program for ARM.
//
//go:noinline
func badConnString(text string) error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpOpen, Err: errors.New("connection string: " + text)}
}
