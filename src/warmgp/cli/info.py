"""What ``warmgp info`` does: a model file told in words and numbers."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table as Grid
from rich.text import Text

from warmgp.cli.answers import length_scales
from warmgp.cli.fitting import show_trend
from warmgp.cli.targets import in_units_of_targets
from warmgp.cli.terminal import cells, console, lines_of, show
from warmgp.cli.updating import told_of
from warmgp.estimator.regressor import GPRegressor

STOPPED = {
    "settled": "until it settled",
    "flat": "the model explains nothing",
    "steps": "all of them: more may help",
    "time": "until the time limit",
}


def tell_model(path: Path) -> None:
    """Prints what a model file holds."""
    model = GPRegressor.load(path, "cpu")
    theta, history, x = model.hyperparameters_, model.history_, model.posterior_.x
    noise, signal = (in_units_of_targets(model, values) for values in (model.noise_std_, model.signal_std_))
    rows: dict[str, str | Text] = {
        "kernel": model.posterior_.kernel.name,
        "rows, columns": f"{x.shape[0]:,}, {model.n_features_in_}",
        "noise": f"{float(theta.noise_scale):.6g} ({noise} in units of y)",
        "signal": f"{float(theta.signal_scale):.6g} ({signal} in units of y)",
        "plan": lines_of(str(model.plan_)),
        "report": str(model.report_),
        "converged": "yes"
        if model.converged_
        else f"no: the mean may be {model.solve_error_:.2g} predictive std from exact",
    }
    if model.target_names_:
        rows["targets"] = ", ".join(model.target_names_)
    if history:
        seconds, epochs = sum(h.step_seconds for h in history), sum(h.epochs for h in history)
        rows["training"] = f"{model.n_steps_} steps ({STOPPED.get(model.stop_reason_, model.stop_reason_)}), " + (
            f"{epochs:.0f} epochs, {seconds:.1f} s"
        )
        rows["last residuals"] = f"{history[-1].residual_mean:.3g} (mean), {history[-1].residual_probes:.3g} (probes)"
    if (likelihood := model.likelihood_) is not None:
        rows["log marginal likelihood"] = f"{likelihood} (standardised units)"
    if model.updates_:
        rows["updates"] = told_of(model.updates_)
    if model.anisotropy_ is not None:
        rows["anisotropy"] = str(model.anisotropy_)
    show(str(path), rows)
    grid = Grid("column", "length scale", "in its units", title="length scales", title_justify="left")
    for row in length_scales(model):
        grid.add_row(*cells(*row))
    console().print(grid)
    show_trend(model)
