package bulk

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/anteroom/anteroom/bulk/congestion"
	"github.com/anteroom/anteroom/bulk/store"
)

// depthsCollector exports the counts of the store, as the stats loop last read them, and of the pool.
type depthsCollector struct {
	m                                                                   *Metrics
	queue, oldest                                                       *prometheus.Desc
	pending, ready, nonReady, inFlight, active, gated                   *prometheus.Desc
	unserved                                                            *prometheus.Desc
	processorRate, processorMost, processorRuns                         *prometheus.Desc
	breaker, breakerTenants                                             *prometheus.Desc
	jain, accuracy, level, backoff, backoffLimit, throttles, spins, age *prometheus.Desc
	workers, workersActive, workersIdle, unacked, unackedMax            *prometheus.Desc
	rate, leader, pinned, p95, failed                                   *prometheus.Desc
	peopleP95, peopleFailed, peopleWaiting, gateways                    *prometheus.Desc
	shardUp, shardPending, shardInFlight                                *prometheus.Desc
}

func newDepthsCollector(m *Metrics) *depthsCollector {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, labels, nil)
	}
	return &depthsCollector{
		m:              m,
		queue:          d("queue_groups", "Groups that wait in the fair queue.", "level"),
		oldest:         d("oldest_job_seconds", "Age of the oldest job that waits for its turn or a limit; 0 without one.", "level"),
		pending:        d("pending_jobs", "Jobs that wait in the queue of their group."),
		ready:          d("ready_jobs", "Jobs that are ready to start."),
		nonReady:       d("non_ready_jobs", "Jobs that wait for a backoff, a Retry-After or their run_at."),
		inFlight:       d("in_flight_jobs", "Jobs that run, under a lease."),
		active:         d("active_tenants", "Tenants with a job that only a rate can hold back."),
		gated:          d("gated_groups", "Groups that may start no job at the moment."),
		jain:           d("fairness_jain", "Jain's index over active tenants."),
		accuracy:       d("rate_accuracy_ratio", "Starts a second over the rate in force."),
		level:          d("congestion_level", "Worst congestion level of a tenant."),
		backoff:        d("congestion_backoff_seconds", "Longest congestion backoff of a tenant."),
		backoffLimit:   d("congestion_backoff_limit_seconds", "Longest possible backoff, congestion.max_backoff."),
		throttles:      d("throttles_per_job", "Average number of refusals of a job."),
		unserved:       d("unserved_jobs", "Jobs whose type no process has run for a minute."),
		processorRate:  d("processor_rate_limit", "Jobs of the type that may start a second, over all processes.", "type"),
		processorMost:  d("processor_concurrency_limit", "Jobs of the type that may run at once, over all processes.", "type"),
		processorRuns:  d("processor_in_flight", "Runs that count towards the concurrency of their type.", "type"),
		breaker:        d("breaker_open", "1 while the breaker of the type is open: only probes start.", "type"),
		breakerTenants: d("breaker_open_tenants", "Tenants with an open breaker of their own for jobs of the type.", "type"),
		spins:          d("saved_spins_total", "Pulls avoided by gates and longer backoffs, since the store was created."),
		age:            d("depths_age_seconds", "Age of the counts of the store in this process."),
		workers:        d("workers", "Workers of this process."),
		workersActive:  d("workers_active", "Workers that run a job."),
		workersIdle:    d("workers_idle", "Workers that run no job."),
		unacked:        d("acks_waiting", "Ended runs whose ack is not recorded yet."),
		rate:           d("rate_found", "Global rate set by rate control, jobs a second."),
		leader:         d("rate_leader", "1 while this process is the leader of rate control."),
		pinned:         d("rate_pinned", "1 while a rate set by an operator overrides rate control."),
		p95:            d("downstream_seconds", "95th percentile of the run time of recent jobs."),
		failed:         d("downstream_error_ratio", "Share of recent runs that failed or were refused."),
		peopleP95:      d("people_seconds", "95th percentile of the time to first byte of visitors' recent requests."),
		peopleFailed:   d("people_error_ratio", "Share of visitors' recent requests that failed."),
		peopleWaiting:  d("people_waiting", "Visitors in the queue for the origin."),
		gateways:       d("people_gateways", "Gateways that reported on the origin in the last seconds."),
		shardUp:        d("shard_up", "1 while the shard replies, 0 otherwise; only with several shards.", "shard"),
		shardPending:   d("shard_pending_jobs", "Jobs of the shard that wait in the queue of their group; only with several shards.", "shard"),
		shardInFlight:  d("shard_in_flight_jobs", "Jobs of the shard that run, under a lease; only with several shards.", "shard"),
		unackedMax:     d("acks_waiting_limit", "Limit of running and unacknowledged runs, at which no further job starts."),
	}
}

func (c *depthsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.queue, c.oldest, c.pending, c.ready, c.nonReady, c.inFlight, c.active, c.gated, c.jain, c.accuracy, c.unserved, c.processorRate, c.processorMost, c.processorRuns, c.breaker, c.breakerTenants,
		c.level, c.backoff, c.backoffLimit, c.throttles, c.spins, c.age, c.workers, c.workersActive, c.workersIdle, c.unacked, c.unackedMax,
		c.rate, c.leader, c.pinned, c.p95, c.failed, c.peopleP95, c.peopleFailed, c.peopleWaiting, c.gateways, c.shardUp, c.shardPending, c.shardInFlight} {
		out <- d
	}
}

// levels maps the congestion levels to numbers.
var levels = map[string]float64{congestion.None: 0, congestion.Low: 1, congestion.Moderate: 2, congestion.High: 3, congestion.Critical: 4}

func (c *depthsCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	c.m.mu.Lock()
	shards, down, pool, steer := maps.Clone(c.m.last), maps.Clone(c.m.down), c.m.pool, c.m.steer
	c.m.mu.Unlock()
	if pool != nil {
		l := pool.snapshot(false)
		gauge(c.workers, float64(l.size))
		gauge(c.workersActive, float64(l.active))
		gauge(c.workersIdle, float64(max(0, l.size-l.active)))
		gauge(c.unacked, float64(l.unacked))
		gauge(c.unackedMax, float64(l.limit))
	}
	if steer != nil {
		flag := map[bool]float64{true: 1}
		gauge(c.rate, float64(steer.found)/1000)
		gauge(c.leader, flag[steer.leader])
		gauge(c.pinned, flag[steer.pinned])
		gauge(c.p95, steer.jobs.P95.Seconds())
		gauge(c.failed, steer.jobs.ErrorRate())
		gauge(c.peopleP95, steer.people.P95.Seconds())
		gauge(c.peopleFailed, steer.people.ErrorRate())
		gauge(c.peopleWaiting, float64(steer.people.Waiting))
		gauge(c.gateways, float64(steer.people.Gateways))
	}
	if len(down) > 1 {
		for n, away := range down {
			gauge(c.shardUp, map[bool]float64{false: 1}[away], strconv.Itoa(n))
		}
		for n, d := range shards {
			gauge(c.shardPending, float64(d.Pending), strconv.Itoa(n))
			gauge(c.shardInFlight, float64(d.InFlight), strconv.Itoa(n))
		}
	}
	if len(shards) == 0 {
		return
	}
	var all []store.Depths
	at := time.Now()
	for _, n := range slices.Sorted(maps.Keys(shards)) {
		all = append(all, shards[n].Depths)
		if shards[n].at.Before(at) {
			at = shards[n].at
		}
	}
	d := store.SumDepths(all)
	types := *c.m.types.Load()
	label := func(jobType string) string {
		if _, is := types[jobType]; is {
			return jobType
		}
		return otherType
	}
	for _, level := range []store.Level{store.High, store.Normal, store.Low} {
		gauge(c.queue, float64(d.Groups[level]), string(level))
		gauge(c.oldest, d.Oldest[level].Seconds(), string(level))
	}
	gauge(c.pending, float64(d.Pending))
	gauge(c.ready, float64(d.Ready))
	gauge(c.nonReady, float64(d.NonReady))
	gauge(c.inFlight, float64(d.InFlight))
	gauge(c.active, float64(d.ActiveTenants))
	gauge(c.gated, float64(d.GatedGroups))
	gauge(c.unserved, float64(d.Unserved))
	for name, l := range d.Types {
		if l.Rate > 0 {
			gauge(c.processorRate, l.Rate, name)
		}
		if l.Concurrency > 0 {
			gauge(c.processorMost, float64(l.Concurrency), name)
			gauge(c.processorRuns, float64(l.Running), name)
		}
	}
	open, tenants := map[string]float64{}, map[string]float64{}
	for _, b := range d.Breakers {
		if b.Tenant == "" {
			open[label(b.Type)]++
		} else {
			tenants[label(b.Type)]++
		}
	}
	for name := range types {
		gauge(c.breaker, min(1, open[name]), name)
		gauge(c.breakerTenants, tenants[name], name)
	}
	gauge(c.jain, d.Jain)
	gauge(c.accuracy, d.RateAccuracy)
	gauge(c.level, levels[d.MaxCongestion])
	gauge(c.backoff, d.MaxBackoff.Seconds())
	gauge(c.backoffLimit, d.BackoffLimit.Seconds())
	gauge(c.throttles, d.AvgThrottles)
	out <- prometheus.MustNewConstMetric(c.spins, prometheus.CounterValue, float64(d.SavedSpins))
	gauge(c.age, time.Since(at).Seconds())
}
