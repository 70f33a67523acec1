package console

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// defaultClients and maxClients limit the tickets of one look-up by address: each is looked up in the store.
const defaultClients, maxClients = 50, 200

// clientView is a ticket or session with the address that its holder last received a token at.
type clientView struct {
	Address string     `json:"address"`
	At      timestamp  `json:"at"`
	Ticket  ticketView `json:"ticket"`
}

// findClients responds with the tickets and sessions that were used from the addresses of a prefix. Only this gateway is asked: addresses
// are never stored.
func (c tickets) findClients(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	prefix, err := prefixOf(r)
	if err != nil {
		return err
	}
	limit, err := wholeParameter(r, "limit", defaultClients, maxClients)
	if err != nil {
		return err
	}
	answer := struct {
		Prefix   string       `json:"prefix"`
		Gateway  string       `json:"gateway"`  // that was asked
		Gateways int64        `json:"gateways"` // of the room
		Total    int          `json:"total"`    // that this gateway remembers
		Clients  []clientView `json:"clients"`
	}{prefix.String(), admission.GatewayOf(c.o.Core), room.Queue.Snapshot().Gateways, 0, []clientView{}}
	var found []Client
	if room.Clients != nil {
		found, answer.Total = room.Clients(prefix, limit)
	}
	err = store(r, func(ctx context.Context) error {
		for _, client := range found {
			v := ticketView{JTI: client.ID.String(), Room: room.Queue.ID(), State: "unknown"} // as of a place behind the front that has not polled
			ticket, err := room.Queue.Lookup(ctx, client.ID)
			switch {
			case err == nil:
				v = viewTicket(room, client.ID, ticket)
			case !errors.Is(err, admission.ErrUnknown):
				return err
			}
			answer.Clients = append(answer.Clients, clientView{client.Address.Unmap().String(), timestamp(client.At), v})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ophttp.OK(w, answer)
}

// prefixOf returns the parameter address, a network or one address.
func prefixOf(r *http.Request) (netip.Prefix, error) {
	values := r.URL.Query()["address"]
	if len(values) == 1 {
		if address, err := netip.ParseAddr(values[0]); err == nil && address.Zone() == "" {
			address = address.Unmap()
			return netip.PrefixFrom(address, address.BitLen()), nil
		}
		if prefix, err := netip.ParsePrefix(values[0]); err == nil {
			if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
				prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
			}
			return prefix.Masked(), nil
		}
	}
	var value []byte
	if len(values) > 0 {
		value = []byte(strconv.Quote(ophttp.Shorten(values[0])))
	}
	return netip.Prefix{}, ophttp.Invalid(ophttp.Fault{Path: "address", Value: value, Problem: "is not one network or address", Allowed: "203.0.113.0/24, 2001:db8::/48, or an address"})
}
