package brokerurl

import (
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// Parameter is one of the parameters behind the '?' of a URL.
type Parameter struct {
	Name string
	// Protocols are those that have it.
	Protocols Protocol
	// Value says what the value may be, Default what holds without the parameter.
	Value, Default string
	// Help says what the parameter is for.
	Help string

	repeated bool // for MQTT
	empty    bool // the value may be empty
	// set stores the value. problem completes a sentence that begins with the parameter's name.
	set func(u *URL, value string) (problem string)
}

// Parameters are all parameters, in the order of the docs.
var Parameters = [...]Parameter{
	{Name: "device", Protocols: MQTT | AMQP, Value: "id", Default: "`client-id`, else a user name with password",
		Help: "the device's id; fills `{device}`", set: setID(func(u *URL) *string { return &u.Device })},
	{Name: "module", Protocols: MQTT | AMQP, Value: "id", Default: "none", Help: "the module's id; fills `{module}`",
		set: setID(func(u *URL) *string { return &u.Module })},
	{Name: "client-id", Protocols: MQTT, Value: "text", Default: "`{device}`, for a module `{device}/{module}`",
		Help: "the client id", set: setText(func(u *URL) *string { return &u.ClientID })},
	{Name: "telemetry", Protocols: MQTT | AMQP, Value: "topic or address", Default: "none", Help: "where messages go",
		set: setText(func(u *URL) *string { return &u.Telemetry })},
	{Name: "commands", Protocols: MQTT | AMQP, Value: "topic filter or address", Default: "none", repeated: true,
		Help: "where messages for the device come from; may be repeated over MQTT", set: addCommands},
	{Name: "qos", Protocols: MQTT, Value: "0 or 1", Default: "1", Help: "quality of service of telemetry", set: setQoS},
	{Name: "retain", Protocols: MQTT, Value: "true or false", Default: "false", Help: "the broker keeps the last message",
		set: setFlag(func(u *URL) *bool { return &u.Retain })},
	{Name: "clean-session", Protocols: MQTT, Value: "true or false", Default: "false",
		Help: "messages sent while the device was away are dropped",
		set:  setFlag(func(u *URL) *bool { return &u.CleanSession })},
	{Name: "keep-alive", Protocols: MQTT, Value: "1 to 65535 seconds", Default: "60, and 180 in CONNECT",
		Help: "time between pings", set: setKeepAlive},
	{Name: "will-topic", Protocols: MQTT, Value: "topic", Default: "none",
		Help: "where the broker publishes the will when the connection is lost",
		set:  setText(func(u *URL) *string { return &u.Will.Topic })},
	{Name: "will-payload", Protocols: MQTT, Value: "text", Default: "empty", Help: "body of the will", empty: true,
		set: setText(func(u *URL) *string { return &u.Will.Payload })},
	{Name: "will-retain", Protocols: MQTT, Value: "true or false", Default: "false", Help: "the will is retained",
		set: setFlag(func(u *URL) *bool { return &u.Will.Retain })},
	{Name: "birth-topic", Protocols: MQTT, Value: "topic", Default: "none", Help: "where each new connection is announced",
		set: setText(func(u *URL) *string { return &u.Birth.Topic })},
	{Name: "birth-payload", Protocols: MQTT, Value: "text", Default: "empty", Help: "body of the announcement",
		empty: true,
		set:   setText(func(u *URL) *string { return &u.Birth.Payload })},
	{Name: "birth-retain", Protocols: MQTT, Value: "true or false", Default: "false",
		Help: "the announcement is retained", set: setFlag(func(u *URL) *bool { return &u.Birth.Retain })},
	{Name: "version", Protocols: MQTT, Value: "3.1.1 or 5", Default: "3.1.1", Help: "version of MQTT",
		set: setVersion},
	{Name: "session-expiry", Protocols: MQTT, Value: "1 to 4294967294 seconds, or never",
		Default: "86400", Help: "how long the broker keeps the session of a device that is away; with `version=5`",
		set: setSessionExpiry},
}

// foreign are names of other clients' options that have another name or place here.
var foreign = [...]struct{ name, advice string }{
	{"user", userInfo}, {"username", userInfo}, {"password", userInfo}, {"passwd", userInfo}, {"pw", userInfo},
	{"host", "write it in front of the '?'"}, {"port", "write it behind the host, as host:port"},
	{"id", "write device or client-id"}, {"client", "write client-id"}, {"client-identifier", "write client-id"},
	{"device-id", "write device"}, {"module-id", "write module"},
	{"topic", "write telemetry for messages to send, commands for messages to receive"},
	{"publish", "write telemetry"}, {"pub", "write telemetry"}, {"target", "write telemetry"},
	{"subscribe", "write commands"}, {"sub", "write commands"}, {"source", "write commands"},
	{"retained", "write retain"}, {"clean", "write clean-session"}, {"clean-start", "write clean-session"},
	{"keep-alive-secs", "write keep-alive"}, {"keep-alive-interval", "write keep-alive"},
	{"heartbeat", "write keep-alive"},
	{"protocol-version", "write version"}, {"mqtt-version", "write version"}, {"protocol", "write version"},
	{"session-expiry-interval", "write session-expiry"}, {"will", "write will-topic and will-payload"},
	{"will-message", "write will-payload"}, {"birth", "write birth-topic and birth-payload"},
	{"birth-message", "write birth-payload"}, {"path", "write it behind the host, with scheme ws or wss"},
	{"ws", "write the scheme ws or wss"}, {"tls", inScheme}, {"ssl", inScheme}, {"secure", inScheme},
	{"ca-file", inOptions}, {"cert", inOptions}, {"cert-file", inOptions}, {"key", inOptions}, {"key-file", inOptions},
	{"cacert", inOptions}, {"insecure", inOptions}, {"verify", inOptions},
	{"timeout", "set device.Options.OperationTimeout or DialTimeout"},
	{"vhost", "RabbitMQ takes its virtual host from the user name over MQTT, as vhost:user"},
}

const (
	userInfo  = "write user:password@ in front of the host"
	inScheme  = "write the scheme mqtts, wss or amqps"
	inOptions = "set it in the Network options that ParseBroker returns"
)

// readParameters reads "name=value&name=value".
func (u *URL) readParameters(p Protocol, query string) error {
	var given [len(Parameters)]bool
	for number, more := 1, query != ""; more; number++ {
		var pair string
		pair, query, more = strings.Cut(query, "&")
		where := "parameter " + strconv.Itoa(number)
		name, raw, found := strings.Cut(pair, "=")
		i := find(name)
		switch {
		case pair == "":
			return bad(where + " is empty; leave one '&' between parameters")
		case i < 0:
			return bad(where + unknown(p, name))
		case Parameters[i].Protocols&p == 0:
			return bad(where + ", " + Parameters[i].Name + ", is not for " + p.String() + "; leave it out")
		case !found:
			return bad(Parameters[i].Name + " has no '=' behind it; write " + Parameters[i].Name + "=VALUE")
		case raw == "" && !Parameters[i].empty:
			return bad(Parameters[i].Name + " has no value; give one, or leave it out")
		case given[i] && !(Parameters[i].repeated && p == MQTT):
			return bad(Parameters[i].Name + " is given twice; leave one")
		}
		given[i] = true
		value, err := decode(Parameters[i].Name, raw)
		if err != nil {
			return err
		}
		if problem := Parameters[i].set(u, value); problem != "" {
			return bad(Parameters[i].Name + " " + problem)
		}
	}
	return nil
}

// find returns the index of the parameter called name, -1 if there is none.
func find(name string) int {
	for i := range Parameters {
		if texts.EqualFold(name, Parameters[i].Name) {
			return i
		}
	}
	return -1
}

// unknown describes a wrong name and suggests the likely one. It does not show the name.
func unknown(p Protocol, name string) string {
	if name == "" {
		return " has no name before its '='; write NAME=VALUE"
	}
	var names []string
	for _, k := range Parameters {
		if k.Protocols&p == 0 {
			continue
		}
		if texts.OneEditApart(plain(name), plain(k.Name)) {
			return " is not known; did you mean " + k.Name + "?"
		}
		names = append(names, k.Name)
	}
	for _, f := range foreign {
		if plain(name) == plain(f.name) {
			return " is not known; " + f.advice
		}
	}
	return " is not known; known are " + strings.Join(names, ", ")
}

// plain returns name in the form in which clientId, client_id and client-id are the same.
func plain(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(name))
}

// check sets the default of device, and validates combinations of parameters.
func (u *URL) check() error {
	switch {
	case u.Device != "":
	case validID(u.ClientID):
		u.Device = u.ClientID
	case validID(u.UserName) && u.Password != nil: // a user name alone is a secret token at some brokers
		u.Device = u.UserName
	}
	switch {
	case u.Will.Topic == "" && u.Will != Message{}:
		return bad("will-topic is missing, but there is a will-payload or will-retain; add will-topic=TOPIC")
	case u.Birth.Topic == "" && u.Birth != Message{}:
		return bad("birth-topic is missing, but there is a birth-payload or birth-retain; add birth-topic=TOPIC")
	case u.SessionExpiry != 0 && !u.MQTT5:
		return bad("session-expiry needs MQTT 5; add version=5, or leave it out")
	}
	return nil
}

func setText(field func(*URL) *string) func(*URL, string) string {
	return func(u *URL, value string) string {
		*field(u) = value
		return ""
	}
}

func setID(field func(*URL) *string) func(*URL, string) string {
	return func(u *URL, value string) string {
		if !validID(value) {
			return "is not a valid id; use 1 to 128 ASCII letters, digits and - . + % _ # * ? ! ( ) , : = @ $ '"
		}
		*field(u) = value
		return ""
	}
}

func validID(id string) bool {
	return (&transport.Credentials{Host: "h", DeviceID: id}).Validate() == nil
}

func addCommands(u *URL, value string) string {
	u.Commands = append(u.Commands, value)
	return ""
}

func setFlag(field func(*URL) *bool) func(*URL, string) string {
	return func(u *URL, value string) string {
		*field(u) = texts.EqualFold(value, "true")
		if !*field(u) && !texts.EqualFold(value, "false") {
			return "is neither true nor false; give one of them"
		}
		return ""
	}
}

func setQoS(u *URL, value string) string {
	switch value {
	case "0":
		u.AtMostOnce = true
	case "1":
	case "2":
		return "is 2, which is not sent; give 1, whose resends keep the message id"
	default:
		return "is neither 0 nor 1; give one of them"
	}
	return ""
}

func setKeepAlive(u *URL, value string) string {
	n, ok := seconds(value, 65535)
	if !ok || n == 0 {
		return "is not a number of seconds from 1 to 65535; give one without unit"
	}
	u.KeepAlive = n
	return ""
}

func setVersion(u *URL, value string) string {
	switch value {
	case "3.1.1":
		u.MQTT311 = true
	case "5", "5.0":
		u.MQTT5 = true
	case "4":
		return "is 4, the number of MQTT 3.1.1 in CONNECT; write 3.1.1"
	default:
		return "is neither 3.1.1 nor 5; give one of them"
	}
	return ""
}

func setSessionExpiry(u *URL, value string) string {
	n, ok := seconds(value, 1<<32-2)
	switch {
	case texts.EqualFold(value, "never"):
		n = NoExpiry
	case ok && n == 0:
		return "is 0; write clean-session=true for a session that ends with the connection"
	case !ok:
		return "is neither a number of seconds from 1 to 4294967294 nor never; give one without unit"
	}
	u.SessionExpiry = n
	return ""
}

// seconds reads a decimal number of seconds.
func seconds(text string, most uint64) (time.Duration, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > most {
		return 0, false
	}
	return time.Duration(n) * time.Second, true
}
