package servicefront

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/backend"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var registryRoutes = serviceRoutes(fault.RouteRegistry, []serviceRow{
	{"GET devices", readers, listDevices},
	{"GET devices/", readers, listDevices},
	{"GET devices/{device}", readers, getIdentity},
	{"PUT devices/{device}", hubdata.RightRegistryWrite, withBody(putIdentity)},
	{"DELETE devices/{device}", hubdata.RightRegistryWrite, deleteIdentity},
	{"GET devices/{device}/modules", readers, listModules},
	{"GET devices/{device}/modules/{module}", readers, getIdentity},
	{"PUT devices/{device}/modules/{module}", hubdata.RightRegistryWrite, withBody(putIdentity)},
	{"DELETE devices/{device}/modules/{module}", hubdata.RightRegistryWrite, deleteIdentity},
	{"POST devices", hubdata.RightRegistryWrite, changeInBulk},
	{"POST devices/", hubdata.RightRegistryWrite, changeInBulk},
	{"POST devices/query", readers | hubdata.RightServiceConnect, withBody(queryTwins)},
	{"DELETE devices/{device}/commands", hubdata.RightServiceConnect, purgeC2D},
	{"GET statistics/devices", readers, countDevices},
	{"GET statistics/service", hubdata.RightServiceConnect, countConnected},
})

// maxPage is the maximum number of entries in a list.
const maxPage = 1000

// An identityDocument is a registry entry in the form that back ends send and receive.
type identityDocument struct {
	DeviceID                   string  `json:"deviceId"`
	ModuleID                   string  `json:"moduleId,omitempty"`
	GenerationID               string  `json:"generationId"`
	ETag                       string  `json:"etag"`
	ConnectionState            string  `json:"connectionState"`
	Status                     string  `json:"status"`
	StatusReason               *string `json:"statusReason"`
	ConnectionStateUpdatedTime string  `json:"connectionStateUpdatedTime"`
	StatusUpdatedTime          string  `json:"statusUpdatedTime"`
	LastActivityTime           string  `json:"lastActivityTime"`
	CloudToDeviceMessageCount  int     `json:"cloudToDeviceMessageCount"`
	Authentication             struct {
		SymmetricKey struct {
			PrimaryKey   *string `json:"primaryKey"`
			SecondaryKey *string `json:"secondaryKey"`
		} `json:"symmetricKey"`
		X509Thumbprint thumbprints `json:"x509Thumbprint"`
		Type           string      `json:"type"`
	} `json:"authentication"`
	Capabilities capabilities `json:"capabilities"`
	DeviceScope  string       `json:"deviceScope,omitempty"` // of a device with an edge gateway
	// At a hub with the MQTT v5 connection profile. Back ends cannot change them.
	ADR *adrProperties `json:"adrDeviceProperties,omitempty"`
}

// adrProperties are those of a device in the device registry of Azure.
type adrProperties struct {
	UUID       string   `json:"uuid"`
	Name       string   `json:"name"`
	ETag       string   `json:"etag"`
	SystemData struct{} `json:"systemData"`
}

// adrOf returns the properties of an entry. Its UUID stays the same as long as the entry exists.
func adrOf(h *hub.Hub, id identity.Identity, r *hub.Registration) *adrProperties {
	u := sha256.Sum256([]byte(h.Host + "/" + id.String() + "/" + r.Generation))
	return &adrProperties{
		UUID: fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16]), Name: id.String(), ETag: etagFor(r),
	}
}

type capabilities struct {
	IoTEdge bool `json:"iotEdge"`
}

type thumbprints struct {
	PrimaryThumbprint   *string `json:"primaryThumbprint"`
	SecondaryThumbprint *string `json:"secondaryThumbprint"`
}

func (t thumbprints) tree() document.Tree {
	all := document.Tree{"primaryThumbprint": nil, "secondaryThumbprint": nil}
	if t.PrimaryThumbprint != nil {
		all["primaryThumbprint"] = *t.PrimaryThumbprint
	}
	if t.SecondaryThumbprint != nil {
		all["secondaryThumbprint"] = *t.SecondaryThumbprint
	}
	return all
}

// never is the time of an event that has not happened or is unknown.
const never = "0001-01-01T00:00:00Z"

func documentOf(h *hub.Hub, id identity.Identity) (identityDocument, error) {
	waiting := h.WaitingC2D(id)
	r, connected, ok := h.Registration(id)
	if !ok {
		_, err := h.TwinState(id) // its error names the missing device or module
		return identityDocument{}, err
	}
	d := identityDocument{
		DeviceID: id.Device, ModuleID: id.Module, GenerationID: r.Generation, ETag: etagFor(&r),
		ConnectionState:            "Disconnected",
		Status:                     "enabled",
		ConnectionStateUpdatedTime: never, StatusUpdatedTime: never, LastActivityTime: never,
		CloudToDeviceMessageCount: waiting,
	}
	if connected {
		d.ConnectionState = "Connected"
	}
	if h.MQTTv5 {
		d.ADR = adrOf(h, id, &r)
	}
	if r.Disabled {
		d.Status = "disabled"
	}
	if !r.StatusUpdated.IsZero() {
		d.StatusUpdatedTime = document.TimeText(r.StatusUpdated)
	}
	if r.StatusReason != "" {
		d.StatusReason = &r.StatusReason
	}
	if d.Capabilities.IoTEdge = r.IoTEdge; r.IoTEdge {
		d.DeviceScope = "ms-azure-iot-edge://" + id.Device + "-" + r.Generation
	}
	keys := r.Keys
	switch {
	case !r.X509:
		d.Authentication.Type = "sas"
		d.Authentication.SymmetricKey.PrimaryKey, d.Authentication.SymmetricKey.SecondaryKey = &keys.Primary, &keys.Secondary
	case r.Thumbprints == nil:
		d.Authentication.Type = "certificateAuthority"
	default:
		d.Authentication.Type = "selfSigned"
		places := []**string{&d.Authentication.X509Thumbprint.PrimaryThumbprint,
			&d.Authentication.X509Thumbprint.SecondaryThumbprint}
		for i, digest := range r.Thumbprints {
			text := strings.ToUpper(hex.EncodeToString([]byte(digest)))
			*places[i] = &text
		}
	}
	return d, nil
}

// etagFor returns the ETag of an entry. Every change of the entry changes it, and a later entry of
// the same name has others.
func etagFor(r *hub.Registration) string {
	return base64.StdEncoding.EncodeToString(strconv.AppendInt([]byte(r.Generation+"."), int64(r.Changes)+1, 10))
}

func (d *identityDocument) read(h *hub.Hub) (hub.Registration, error) {
	bad := func(format string, args ...any) (hub.Registration, error) {
		return hub.Registration{}, h.ServiceError(hub.CodeArgumentInvalid, format, args...)
	}
	if err := identity.CheckID("device", d.DeviceID); err != nil {
		return bad("%v", err)
	}
	if d.ModuleID != "" {
		if err := identity.CheckID("module", d.ModuleID); err != nil {
			return bad("%v", err)
		}
	}
	r := hub.Registration{IoTEdge: d.Capabilities.IoTEdge}
	if r.IoTEdge && d.ModuleID != "" {
		return bad("a module cannot have the capability iotEdge")
	}
	switch d.Status {
	case "", "enabled":
	case "disabled":
		r.Disabled = true
	default:
		return bad("status %q", d.Status)
	}
	if d.StatusReason != nil {
		r.StatusReason = *d.StatusReason
	}
	primary, secondary := d.Authentication.SymmetricKey.PrimaryKey, d.Authentication.SymmetricKey.SecondaryKey
	for _, text := range []*string{d.Authentication.X509Thumbprint.PrimaryThumbprint,
		d.Authentication.X509Thumbprint.SecondaryThumbprint} {
		if text == nil || *text == "" {
			continue
		}
		digest, err := hub.ParseThumbprint(*text)
		if err != nil {
			return bad("%v", err)
		}
		r.Thumbprints = append(r.Thumbprints, digest)
	}
	kind := strings.ToLower(d.Authentication.Type)
	if kind == "" {
		kind = "sas"
		if r.Thumbprints != nil {
			kind = "selfsigned"
		}
	}
	switch kind {
	case "sas":
		r.Thumbprints = nil
		if primary != nil && secondary != nil && *primary != "" && *secondary != "" {
			r.Keys = identity.KeyPair{Primary: *primary, Secondary: *secondary}
			return r, checkKeys(h, r.Keys)
		}
		if primary != nil && *primary != "" || secondary != nil && *secondary != "" {
			return bad("one key is missing")
		}
	case "selfsigned":
		if r.X509 = true; r.Thumbprints == nil {
			return bad("no thumbprint")
		}
	case "certificateauthority":
		r.X509, r.Thumbprints = true, nil
	default:
		return bad("authentication type %q", d.Authentication.Type)
	}
	return r, nil
}

func checkKeys(h *hub.Hub, keys identity.KeyPair) error {
	for _, key := range []string{keys.Primary, keys.Secondary} {
		if err := hub.CheckKeyText(key); err != nil {
			return h.ServiceError(hub.CodeArgumentInvalid, "%v", err)
		}
	}
	return nil
}

func getIdentity(q *web.Request) (web.Answer, error) {
	d, err := documentOf(q.Hub, q.ID)
	return web.AnswerJSON(d, d.ETag), err
}

// putIdentity creates an entry, or with If-Match updates one.
func putIdentity(q *web.Request, d *identityDocument) (web.Answer, error) {
	h := q.Hub
	if d.DeviceID != q.ID.Device || d.ModuleID != q.ID.Module {
		return web.Answer{}, h.ServiceError(hub.CodeArgumentInvalid, "the body is about %s, the path about %s",
			identity.Identity{Device: d.DeviceID, Module: d.ModuleID}, q.ID)
	}
	r, err := d.read(h)
	if err != nil {
		return web.Answer{}, err
	}
	if etag, update := ifMatch(q); update {
		err = updateIdentity(h, q.ID, r, etag)
	} else {
		err = createIdentity(h, q.ID, r)
	}
	if err != nil {
		return web.Answer{}, err
	}
	return getIdentity(q)
}

func createIdentity(h *hub.Hub, id identity.Identity, r hub.Registration) error {
	err := h.Register(id, r, backend.MaxModules)
	switch {
	case !errors.Is(err, hub.ErrIdentityExists):
		return err
	case id.Module != "":
		return h.ServiceError(409301, "%s is registered already", id)
	}
	return h.ServiceError(409001, "%s is registered already", id)
}

func updateIdentity(h *hub.Hub, id identity.Identity, r hub.Registration, etag string) error {
	if _, err := h.TwinState(id); err != nil {
		return err
	}
	if !h.Reregister(id, r, func(old *hub.Registration) bool { return etag == "*" || etag == etagFor(old) }) {
		return h.ServiceError(hub.CodePreconditionFailed, "the etag of %s is another", id)
	}
	return nil
}

func deleteIdentity(q *web.Request) (web.Answer, error) {
	etag, ok := ifMatch(q)
	if !ok {
		etag = "*"
	}
	return web.Answer{Status: http.StatusNoContent}, removeIdentity(q.Hub, q.ID, etag)
}

func removeIdentity(h *hub.Hub, id identity.Identity, etag string) error {
	if h.Unregister(id, func(r *hub.Registration) bool { return etag == "*" || etag == etagFor(r) }) {
		return nil
	}
	if _, err := h.TwinState(id); err != nil {
		return err
	}
	return h.ServiceError(hub.CodePreconditionFailed, "the etag of %s is another", id)
}

// documents returns the entries that want accepts, sorted by name, at most most.
func documents(h *hub.Hub, most int, want func(identity.Identity) bool) []identityDocument {
	all := []identityDocument{}
	for _, id := range h.Identities() {
		if len(all) >= most {
			break
		}
		if want(id) {
			if d, err := documentOf(h, id); err == nil { // it may have been removed meanwhile
				all = append(all, d)
			}
		}
	}
	return all
}

func listDevices(q *web.Request) (web.Answer, error) {
	most, err := topOf(q)
	if err != nil {
		return web.Answer{}, err
	}
	return web.AnswerJSON(documents(q.Hub, most, func(id identity.Identity) bool { return id.Module == "" }), ""), nil
}

// topOf returns how many entries a request for a list wants.
func topOf(q *web.Request) (int, error) {
	top := q.Query.Get("top")
	if top == "" {
		return maxPage, nil
	}
	n, err := strconv.Atoi(top)
	if err != nil || n < 1 || n > maxPage {
		return 0, q.Hub.ServiceError(hub.CodeArgumentInvalid, "top %q, want 1 to %d", top, maxPage)
	}
	return n, nil
}

func listModules(q *web.Request) (web.Answer, error) {
	if _, err := q.Hub.TwinState(q.ID); err != nil {
		return web.Answer{}, err
	}
	return web.AnswerJSON(documents(q.Hub, maxPage,
		func(id identity.Identity) bool { return id.Device == q.ID.Device && id.Module != "" }), ""), nil
}

func purgeC2D(q *web.Request) (web.Answer, error) {
	if _, err := q.Hub.TwinState(q.ID); err != nil {
		return web.Answer{}, err
	}
	n := 0
	if queue, err := q.Hub.Queue(q.ID, hub.Commands); err == nil {
		n = queue.Purge()
		q.Hub.Changed.Wake()
	}
	return web.AnswerJSON(document.Tree{"totalMessagesPurged": n, "deviceId": q.ID.Device, "moduleId": nil}, ""), nil
}

func countDevices(q *web.Request) (web.Answer, error) {
	all, disabled := 0, 0
	for _, id := range q.Hub.Identities() {
		if r, _, ok := q.Hub.Registration(id); ok && id.Module == "" {
			all++
			if r.Disabled {
				disabled++
			}
		}
	}
	return web.AnswerJSON(
		document.Tree{"totalDeviceCount": all, "enabledDeviceCount": all - disabled, "disabledDeviceCount": disabled},
		"",
	), nil
}

func countConnected(q *web.Request) (web.Answer, error) {
	n := 0
	for _, id := range q.Hub.Identities() {
		if _, connected, _ := q.Hub.Registration(id); connected && id.Module == "" {
			n++
		}
	}
	return web.AnswerJSON(document.Tree{"connectedDeviceCount": n}, ""), nil
}
