"""Football drawn from positions."""

import json

import numpy as np

from emu import envs
from emu.envs.football import draw
from emu.envs.football.env import Moment
from emu.envs.football.features import Pitch, state_of
from emu.envs.protocols import Drawable, Sketchable

from .common import THREE


def colour(name):
    return np.array([int(name[i : i + 2], 16) for i in (1, 3, 5)])


def moment(score=(0, 0), step=3):
    pitch = Pitch(
        agents=np.array([[0.2, 0.1], [0.5, 0.2], [0.5, -0.2]]),
        agents_direction=np.zeros((3, 2)),
        opponents=np.array([[0.98, 0.0], [0.7, 0.05]]),
        opponents_direction=np.zeros((2, 2)),
        ball=np.array([0.35, -0.05, 0.11]),
        ball_direction=np.zeros(3),
    )
    return Moment(pitch, np.array([-1.0, 0.0]), (0, 1), score, step)


def at(picture, xy):
    """The colour at a place of the pitch."""
    x, y = (draw.place(xy) + [0, draw.CAPTION]) * draw.PIXELS / draw.SCALE  # noqa: RUF005
    return picture[round(y), round(x)].astype(int)


def test_a_picture_shows_everybody_where_they_are():
    env = envs.make(THREE)
    assert isinstance(env, Drawable)
    picture = env.draw(moment())
    assert picture.dtype == np.uint8 and picture.ndim == 3
    edge = np.array([0.02, 0.0])  # beside the number
    for xy in moment().pitch.agents:
        assert np.abs(at(picture, xy + 0.7 * edge) - colour(draw.TEAM)).max() < 30
    for xy in moment().pitch.opponents:
        assert np.abs(at(picture, xy - 0.7 * edge) - colour(draw.OTHERS)).max() < 30
    assert np.abs(at(picture, moment().pitch.ball[:2]) - 255).max() < 30
    assert np.array_equal(picture, env.draw(moment())) and not np.array_equal(picture, env.draw(moment((1, 0))))


def test_a_film_shows_where_the_ball_came_from():
    env, start = envs.make(THREE), moment()
    later = start._replace(pitch=start.pitch._replace(ball=np.array([0.35, 0.25, 0.11])), step=4)
    first, second = env.frames([start, later])
    np.testing.assert_array_equal(first, env.draw(start))
    halfway = (0.35, 0.1)
    assert at(second, halfway).mean() > at(env.draw(later), halfway).mean() + 30


def test_a_sketch_stands_where_the_state_says():
    env = envs.make(THREE)
    assert isinstance(env, Sketchable)
    pitch = moment().pitch
    gone = pitch._replace(agents=np.array([[0.2, 0.1], [0.5, 0.2], [-0.5, -0.2]]))
    sketch = env.sketch(np.stack([state_of(pitch), state_of(gone)]).astype(np.float16))
    json.dumps(sketch.scene)
    assert sketch.figures.shape == (2, 3 + 2 + 1, 4) and len(sketch.scene["figures"]) == 6
    everyone = np.concatenate([pitch.agents, pitch.opponents, pitch.ball[None, :2]])
    np.testing.assert_allclose(sketch.figures[0, :, :2], draw.place(everyone), atol=0.05)
    np.testing.assert_array_equal(sketch.figures[..., 2], [[1] * 6, [1, 1, 0, 1, 1, 1]])
    for shape in sketch.scene["shapes"]:
        points = np.array(shape["line"])
        assert (points >= 0).all() and (points <= [sketch.scene["width"], sketch.scene["height"]]).all()
