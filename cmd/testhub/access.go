package main

import (
	"context"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// accessTime is how long the tokens of commands are valid: longer than testhub runs on a desk.
const accessTime = 30 * 24 * time.Hour

// An access is what a program needs to be a device or module: names, secrets, and commands that
// work as they stand.
type access struct {
	readyDevice
	PrimaryKey   string `json:"primaryKey,omitempty"`
	SecondaryKey string `json:"secondaryKey,omitempty"`
	// ClientID and UserName are those of MQTT. Token is the password there, and the header
	// Authorization over HTTPS.
	ClientID string          `json:"clientId"`
	UserName string          `json:"userName,omitempty"`
	Token    string          `json:"token,omitempty"`
	Commands []accessCommand `json:"commands"`
}

// An accessCommand is a line for a shell that sends one message.
type accessCommand struct {
	Client string `json:"client"` // the program: curl, mosquitto_pub, hubline or node
	Line   string `json:"line"`
}

func (c *control) access(r *call) (any, *refusal) {
	if problem := r.query(); problem != nil {
		return nil, problem
	}
	a, err := newAccess(r.Context(), c.hub, c.ready, r.device())
	if err != nil {
		return nil, noDevice(r.device()) // removed meanwhile
	}
	return a, nil
}

// newAccess returns the access of a device or module of one of the hubs.
func newAccess(ctx context.Context, hub *testbroker.Hub, ready *readyObject, id string) (*access, error) {
	d, err := hub.Device(id)
	if err != nil {
		return nil, err
	}
	a := &access{readyDevice: readyDevice{Device: id, ConnectionString: d.ConnectionString()}, PrimaryKey: d.PrimaryKey,
		SecondaryKey: d.SecondaryKey, ClientID: id, Commands: []accessCommand{}}
	for _, known := range ready.Devices {
		if known.Device == id && ready.Host == hub.HostName() {
			a.Certificate = known.Certificate
		}
	}
	at := ready.addressesOf(hub.HostName())
	a.BrokerURL = brokerURL(hub, id, at["mqtt"])
	if a.BrokerURL == "" && hub.ConnectionProfile() != nextwire.ProfileMQTTv5 {
		a.UserName = d.HostName + "/" + id + "/?api-version=2021-04-12"
		if a.Token, err = deviceToken(ctx, d); err != nil {
			return nil, err
		}
	}
	m := commandMaker{access: a, device: d, ca: quote(ready.CA), at: at}
	m.v5 = hub.ConnectionProfile() == nextwire.ProfileMQTTv5
	if ready.ControlToken == "" && ready.Host == hub.HostName() {
		m.control = ready.Control
	}
	for _, make := range []func() (client, line string){m.curl, m.mosquitto, m.hubline, m.node} {
		if client, line := make(); line != "" {
			a.Commands = append(a.Commands, accessCommand{client, line})
		}
	}
	return a, nil
}

// firstCommand returns the first command of the first device that has one; empty if none has.
func firstCommand(ctx context.Context, hub *testbroker.Hub, ready *readyObject) (string, error) {
	for _, d := range ready.Devices {
		a, err := newAccess(ctx, hub, ready, d.Device)
		if err != nil {
			return "", err
		}
		if len(a.Commands) > 0 {
			return a.Commands[0].Line, nil
		}
	}
	return "", nil
}

// deviceToken returns a token that the device could have made; empty without a key.
func deviceToken(ctx context.Context, d hubdata.Device) (string, error) {
	if d.PrimaryKey == "" {
		return "", nil
	}
	sign, err := transport.SharedKey(d.PrimaryKey)
	if err != nil {
		return "", err
	}
	token, err := transport.SignToken(ctx, sign, d.HostName+devicePath(d, unescaped), "", time.Now().Add(accessTime))
	return token.Text.Reveal(), err
}

// devicePath is the path of a device or module in tokens, topics and requests.
func devicePath(d hubdata.Device, escape func(string) string) string {
	if d.ModuleID == "" {
		return "/devices/" + escape(d.ID)
	}
	return "/devices/" + escape(d.ID) + "/modules/" + escape(d.ModuleID)
}

func unescaped(id string) string { return id }

// addressesOf returns the addresses of a hub by its name, with localhost for any and for loopback:
// every certificate is for that name.
func (r *readyObject) addressesOf(host string) map[string]string {
	given := r.Addresses
	for _, h := range r.Hubs {
		if h.Host == host {
			given = h.Addresses
		}
	}
	return reachable(given)
}

// reachable returns addresses with localhost for any and for loopback.
func reachable(given map[string]string) map[string]string {
	all := make(map[string]string, len(given))
	for name, at := range given {
		host, port, _ := net.SplitHostPort(at)
		if ip := net.ParseIP(host); ip != nil && (ip.IsUnspecified() || host == "127.0.0.1" || ip.Equal(net.IPv6loopback)) {
			host = "localhost"
		}
		all[name] = net.JoinHostPort(host, port)
	}
	return all
}

// sample is the body of the message that a command sends.
const sample = `'{"temperature":21.5}'`

// A commandMaker writes the line of each program. A line is empty if the program or the hub cannot.
type commandMaker struct {
	*access
	device hubdata.Device
	ca     string            // a file, quoted
	at     map[string]string // by protocol
	v5     bool              // the hub has the profile mqttV5
	// control is the address of a control API that knows the device and needs no token; or empty.
	control string
}

// certificate returns the flags with the files of a device that has a certificate; empty with a
// key.
func (m *commandMaker) certificate(cert, key string) string {
	if m.device.PrimaryKey != "" {
		return ""
	}
	certFile, keyFile := "device.pem", "device.key" // the user has them
	if m.Certificate != "" {
		certFile, keyFile = m.Certificate, m.Certificate
	}
	return " " + cert + " " + quote(certFile) + " " + key + " " + quote(keyFile)
}

func (m *commandMaker) curl() (client, line string) {
	at := m.at["https"]
	if at == "" || m.UserName == "" || m.device.GatewayHostName != "" {
		return "curl", ""
	}
	line = "curl --cacert " + m.ca + m.certificate("--cert", "--key")
	if m.Token != "" {
		line += " -H " + quote("Authorization: "+m.Token)
	}
	events := "https://" + at + devicePath(m.device, url.PathEscape) + "/messages/events?api-version=2021-04-12"
	return "curl", line + " " + quote(events) + " -d " + sample
}

func (m *commandMaker) hubline() (client, line string) {
	at := m.at["mqtt"]
	if at == "" {
		return "hubline", ""
	}
	if m.control != "" {
		line = "HUB=" + m.control + " hubline send -testhub " + quote(m.Device)
		if m.Certificate == "" {
			line += m.certificate("-cert", "-cert-key")
		}
		return "hubline", line + " -body " + sample
	}
	line = "HUBLINE_CONNECTION_STRING=" + quote(m.ConnectionString) + " hubline send -address " + at
	if m.BrokerURL != "" {
		line = "HUBLINE_BROKER_URL=" + quote(m.BrokerURL) + " hubline send"
	}
	if m.v5 {
		line += " -transport mqtt5"
	}
	return "hubline", line + " -ca " + m.ca + m.certificate("-cert", "-cert-key") + " -body " + sample
}

func (m *commandMaker) mosquitto() (client, line string) {
	host, port, _ := net.SplitHostPort(m.at["mqtt"])
	if host == "" || m.v5 || m.device.GatewayHostName != "" {
		return "mosquitto_pub", ""
	}
	user, password, topic := m.UserName, m.Token, devicePath(m.device, unescaped)[1:]+"/messages/events/"
	if broker, err := url.Parse(m.BrokerURL); err == nil && m.BrokerURL != "" {
		user = broker.User.Username()
		topic = strings.NewReplacer("{device}/{module}", m.ClientID, "{device}", m.ClientID).Replace(
			broker.Query().Get("telemetry"))
		password, _ = broker.User.Password()
	}
	line = "mosquitto_pub -h " + host + " -p " + port + " --cafile " + m.ca + m.certificate("--cert", "--key") + " -i " +
		quote(m.ClientID) + " -u " + quote(user)
	if password != "" {
		line += " -P " + quote(password)
	}
	return "mosquitto_pub", line + " -q 1 -t " + quote(topic) + " -m " + sample
}

// node is for npm azure-iot-device and azure-iot-device-mqtt. A gateway's name takes their MQTT to
// another port than the service's.
func (m *commandMaker) node() (client, line string) {
	at := m.at["mqtt"]
	if at == "" || m.Token == "" || m.device.GatewayHostName != "" {
		return "node", ""
	}
	kind, connection := "Client", m.ConnectionString
	if m.device.ModuleID != "" {
		kind = "ModuleClient: Client"
	}
	if !strings.HasSuffix(at, ":8883") {
		connection += ";GatewayHostName=" + at
	}
	return "node", "NODE_EXTRA_CA_CERTS=" + m.ca + " CONNECTION_STRING=" + quote(connection) + " node -e " +
		quote(`const {`+kind+`, Message} = require("azure-iot-device");
const {Mqtt} = require("azure-iot-device-mqtt");
const client = Client.fromConnectionString(process.env.CONNECTION_STRING, Mqtt);
client.sendEvent(new Message(JSON.stringify({temperature: 21.5}))).then(() => client.close());`)
}
