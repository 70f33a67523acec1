package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/internal/settings"
)

// Quota is a number of events per duration, written as 20/1m.
type Quota struct {
	N   int64
	Per time.Duration
}

// ParseQuota reads a whole number, a slash and a duration; the number may be from 1 to most, the time from a second to a day.
func ParseQuota(text string, most int64) (Quota, error) {
	count, per, ok := strings.Cut(text, "/")
	if !ok || !settings.AllDigits(count) {
		return Quota{}, errors.New("use a number, a slash and a time, such as 20/1m")
	}
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 || n > most {
		return Quota{}, fmt.Errorf("use a number from 1 to %d before the slash", most)
	}
	d, err := settings.ParseDuration(per)
	if err != nil || d < time.Second || d > 24*time.Hour {
		return Quota{}, errors.New("use one duration from 1s to 24h with its unit after the slash, such as 20/1m")
	}
	return Quota{N: n, Per: d}, nil
}

func (q Quota) perSecond() float64 { return float64(q.N) / q.Per.Seconds() }

const (
	mostJoins = 100_000
	// wideShare is the default limit of a network, as a multiple of an address's.
	wideShare = 10
)

// Joins returns the limits of joins_per_ip: of an address, and of its network. Zero values are no limit.
func (g *Guard) Joins() (address, network Quota, err error) {
	if g.JoinsPerIP == "" {
		return Quota{}, Quota{}, nil
	}
	first, second, both := strings.Cut(g.JoinsPerIP, ",")
	if address, err = ParseQuota(strings.TrimSpace(first), mostJoins); err != nil {
		return Quota{}, Quota{}, err
	}
	network = Quota{N: min(mostJoins, wideShare*address.N), Per: address.Per}
	if both {
		if network, err = ParseQuota(strings.TrimSpace(second), mostJoins); err != nil {
			return Quota{}, Quota{}, fmt.Errorf("the network's limit, after the comma: %w", err)
		}
	}
	if network.N < address.N && network.perSecond() < address.perSecond() {
		return Quota{}, Quota{}, errors.New("the limit of a network is smaller than the limit of one address; put the larger limit after the comma, such as 20/1m,200/1m")
	}
	return address, network, nil
}
