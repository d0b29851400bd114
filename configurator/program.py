"""One run of the configurator: plan, show or make the changes, and print the next steps."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

from configurator.backup import Backup, RunRecord, backups, remove_undone, remove_unfinished, undone_backups
from configurator.certificate_plan import CLIENT_KEY, SECRET
from configurator.certificates import CLIENT_NAME
from configurator.difference import difference
from configurator.errors import ConfiguratorError, NotPutBack
from configurator.extender_secret import DEFAULT, SecretName, apply_secret, name_in
from configurator.files import read_input, read_state
from configurator.flags import DEFAULT_WEBHOOKS, Flags
from configurator.plan import CERTIFICATE_DIRECTORY, Plan, make_plan
from configurator.transaction import commit, locked, missing_directories, remove_left_over
from gas.cluster.errors import ApiUnavailable, NoCluster, OutcomeUnknown
from gas.values.errors import GasError

API_SERVER_RESTART = 120.0
"""Seconds within which kubelet restarts kube-apiserver after its manifest has changed."""

Say = Callable[[str], None]
"""Prints one line or several for the administrator."""


def run(flags: Flags, *, user: int, now: datetime, say: Say, coloured: bool) -> None:
    """Do what the flags ask for. Raises GasError; then nothing was changed, unless the sentence says so.

    user      number of the user who runs the program
    coloured  whether to show the difference in colours
    """
    for warning in flags.warnings:
        say(f"note: {warning}")
    if flags.dry_run:
        _show(make_plan(flags, now), say, coloured=coloured)
        return
    if user != 0:
        raise ConfiguratorError(
            "only root can change the control plane's files: run this as root, or use -dry-run to see the changes"
        )
    if flags.apply_secret:
        _check_kubeconfig(flags.kubeconfig)
    with locked(_own_place(flags)):
        _remove_left_over(flags)
        if flags.undo:
            _undo(flags, say)
            return
        plan = _change(flags, now, say)
    if flags.apply_secret:
        _apply(flags, plan, now, say)


def _check_kubeconfig(path: Path) -> None:
    """Raise ConfiguratorError if the kubeconfig for the Secret cannot be used. Sends nothing."""

    async def check() -> None:
        from gas.cluster.connection import connect

        await (await connect(str(path), explicit=True)).close()

    try:
        asyncio.run(check())
    except NoCluster as error:
        what = error if path.exists() else f"kubeconfig {path}: the file does not exist"
        raise ConfiguratorError(
            f"nothing was changed, because --apply-secret needs an administrator's kubeconfig: {what}; name another "
            "one with --kubeconfig, or leave out --apply-secret"
        ) from error


def _apply(flags: Flags, plan: Plan, now: datetime, say: Say) -> None:
    """Bring the authority into the webhooks and the Secret into the cluster, in this order.

    So the API server already trusts the authority when the extender begins to present a certificate of it.
    """
    file = flags.own_directory / SECRET
    secret = _secret(flags)
    patience = API_SERVER_RESTART if plan.restarts_api_server else 0.0

    async def apply() -> None:
        from configurator.webhooks import trust
        from gas.cluster.connection import connect

        api = await connect(str(flags.kubeconfig), explicit=True, user_agent="gas-configurator")
        try:
            changed, _ = await trust(api, flags.webhooks or DEFAULT_WEBHOOKS, plan.serving_authority, now)
            for sentence in changed:
                say(sentence)
            await apply_secret(api, secret, read_input(file))
        finally:
            await api.close()

    try:
        asyncio.run(_with_patience(apply, patience))
    except GasError as error:
        raise ConfiguratorError(
            f"all files are complete, but the Secret {secret} could not be applied to the cluster: {error}; run this "
            f"again, or kubectl apply -f {file}"
        ) from error
    say(f"the Secret {secret} is in the cluster")


async def _with_patience(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Do the work. While the API server cannot be reached, try again for so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await work()
        except (ApiUnavailable, OutcomeUnknown):
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(1)


def _secret(flags: Flags) -> SecretName:
    """Return the name of the Secret whose manifest exists now."""
    state = read_state(flags.own_directory / SECRET)
    return flags.secret or (name_in(state.content) if state is not None else None) or DEFAULT


def _show(plan: Plan, say: Say, *, coloured: bool) -> None:
    _print_notes(plan, say)
    if plan.changes:
        say(difference(plan.changes, coloured=coloured).rstrip("\n"))
        say(f"dry run: {len(plan.changes)} file(s) would be changed, nothing was")
    else:
        say("dry run: nothing would be changed")


def _change(flags: Flags, now: datetime, say: Say) -> Plan:
    """Make the changes that are needed, and return their plan."""
    for path in undone_backups(_places_of_backups(flags)).values():
        remove_undone(path)
    _take_back_unfinished_runs(flags, say)
    plan = make_plan(flags, now)
    remove_left_over([change.path for change in plan.changes], flags.manifest.parent)
    _print_notes(plan, say)
    if not plan.changes:
        say("nothing to change")
        return plan
    directories = missing_directories(plan.changes)
    record = RunRecord(_own_place(flags), flags.backups, plan.changes, directories, now)
    try:
        commit(plan.changes, manifests=flags.manifest.parent, directories=directories, finish=record.finish)
    except NotPutBack as error:
        raise NotPutBack(
            f"{error}. The earlier files are in {record.directory}: fix the cause and run this again, which first "
            "undoes what this run changed"
        ) from error
    except BaseException:
        record.forget()
        raise
    for change in plan.changes:
        say(f"{'changed' if change.before is not None else 'created'} {change.path}")
    if record.kept is not None:
        say(f"backup: {record.kept}; --undo restores it")
    _print_next_steps(flags, plan, say)
    return plan


def _take_back_unfinished_runs(flags: Flags, say: Say) -> None:
    for backup in _unfinished_runs(flags):
        _bring_back(backup, flags, say)
        backup.remove()
        say(f"an earlier run did not finish; its changes were undone first ({backup.directory.name})")


def _unfinished_runs(flags: Flags) -> list[Backup]:
    newest = [found[0] for place in _places_of_backups(flags) if (found := backups(place))]
    return [backup for backup in newest if not backup.complete]


def _remove_left_over(flags: Flags) -> None:
    """Remove what killed runs left: copies of files, also of private keys."""
    places = _places_of_backups(flags)
    remove_unfinished(places)
    last = [file.path for place in places for backup in backups(place)[:1] for file in backup.files]
    secret = [flags.own_directory / SECRET, (flags.certificate_directory or CERTIFICATE_DIRECTORY) / CLIENT_KEY]
    remove_left_over([*last, *secret, flags.manifest], flags.manifest.parent)


def _own_place(flags: Flags) -> Path:
    """Return the directory that every run locks and checks for the backup of a run that was killed."""
    return flags.manifest.parent.parent


def _places_of_backups(flags: Flags) -> list[Path]:
    return list(dict.fromkeys(place for place in (flags.backups, _own_place(flags)) if place is not None))


def _undo(flags: Flags, say: Say) -> None:
    if undone := undone_backups(_places_of_backups(flags)):
        for name, path in undone.items():
            say(f"the last --undo had already undone {name}; run --undo again for the run before it")
            remove_undone(path)
        return
    found = backups(flags.backups) if flags.backups is not None else []
    found = [*(backup for backup in _unfinished_runs(flags) if backup not in found), *found]
    if not found:
        raise ConfiguratorError(f"{flags.backups} contains no backup of a run, so there is nothing to undo")
    secret = _secret(flags)
    _bring_back(found[0], flags, say)
    undone_backup = found[0].mark_undone()
    say(f"undid {found[0].directory.name}")
    if len(found) > 1:
        say(f"the run before it can be undone as well: {found[1].directory.name}")
    say(f"the Secret {secret} stays in the cluster; kubectl delete secret --namespace={secret.namespace} {secret.name} "
        "deletes it")  # fmt: skip
    remove_undone(undone_backup)


def _bring_back(backup: Backup, flags: Flags, say: Say) -> None:
    """Restore the files of a backup. The caller then removes the backup."""
    made = backup.undoing()
    try:
        # If this run is killed half-way, the next one finds an incomplete run and undoes the rest.
        commit(made, manifests=flags.manifest.parent, start=lambda: backup.mark(complete=False))
    except NotPutBack as error:
        raise NotPutBack(
            f"{error}. They are as they were before {backup.directory.name}, the other files are not: fix the cause "
            "and run the same again"
        ) from error
    except BaseException:
        if backup.complete:
            with contextlib.suppress(OSError):
                backup.mark(complete=True)
        raise
    for directory in reversed(backup.directories):
        with contextlib.suppress(OSError):  # not empty: another program has put something there
            directory.rmdir()
    for change in made:
        say(f"{'restored' if change.after is not None else 'removed'} {change.path}")


def _print_notes(plan: Plan, say: Say) -> None:
    for note in plan.notes:
        say(f"new: {note}")
    for warning in plan.warnings:
        say(f"note: {warning}")


def _print_next_steps(flags: Flags, plan: Plan, say: Say) -> None:
    secret = flags.own_directory / SECRET
    if not flags.apply_secret and any(change.path == secret for change in plan.changes):
        say(f"next: kubectl apply -f {secret}, which gives the extender its certificates")
    if plan.cluster_signs:
        say(
            "note: the cluster's authority signs every kubelet's certificate too; start the extender with "
            f"--allowed-names={CLIENT_NAME}"
        )
