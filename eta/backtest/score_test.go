package backtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/anteroom/anteroom/eta"
)

func TestTable(t *testing.T) {
	var cs []Contender
	for _, n := range []string{"window", "fixed", "ema", "hourly"} {
		e, _ := eta.New(n, eta.Options{})
		cs = append(cs, Contender{Name: n, Estimator: e})
	}
	for _, s := range Synthetic(1) {
		t0 := time.Now()
		sc := Run(s, 1, cs)
		for i, c := range cs {
			r := sc[i]
			fmt.Printf("%-13s %-7s n %6d unk %5d MAPE %5.1f MAE %6.1f under %4.0f cover %5.1f jumps %5.2f (%d) first %5.1f after %5.1f\n", s.Name, c.Name, r.Asked, r.Unknown, 100*r.MAPE(), r.MAE(), 100*r.UnderShare(), 100*r.Coverage(), 100*r.JumpShare(), r.Updates, 100*r.FirstSum/float64(r.First), 100*r.AfterMAPE())
		}
		fmt.Println(time.Since(t0))
	}
}
