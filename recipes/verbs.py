"""English verbs and their past tense: regular ones, whose past follows from three rules, and irregular ones."""

from __future__ import annotations

REGULAR = """
abandon absorb accept accompany account accuse achieve acquire act adapt add address adjust admire adopt advance
advise affect afford agree aim alarm alert allow alter amaze amuse analyse announce annoy answer anticipate apologise
appeal appear applaud apply appoint appreciate approach approve argue arrange arrest arrive ask assemble assert assess
assign assist assume assure attach attack attain attempt attend attract avoid await award bake balance bandage banish
bark bathe battle beam behave belong blame bleach bless blink boast boil bolt bomb book bore borrow bounce bow box
brake branch breathe bruise brush bubble bump burn bury buzz calculate call camp campaign cancel capture care carry
carve cast cause cease celebrate challenge change charge chase chat cheat check cheer chew choke chop claim clap
clarify clean clear climb close coach collapse collect comb combine comfort command comment commit communicate compare
compete complain complete compose comprise compute conceal concede concentrate concern conclude conduct confess
confirm confront confuse connect conquer consider consist construct consult consume contact contain continue contract
contrast contribute control convert convey convince cook cool cooperate cope copy correct correspond cough count cover
crack crash crawl create cross crush cry cure curl cycle damage dance dare debate decay deceive decide declare decline
decorate decrease defeat defend define delay delete deliver demand demonstrate deny depart depend depict derive
describe desert deserve design desire destroy detect determine develop devote differ dig diminish dine dip direct
disagree disappear disappoint disapprove discover discuss dislike dismiss display dissolve distinguish distribute
disturb dive divide donate double doubt drag drain dream dress drift drill drop drown drum dry dump dust earn ease
edit educate elect eliminate embarrass embrace emerge emphasise employ empty enable encounter encourage end endure
enforce engage enhance enjoy ensure enter entertain equip escape establish estimate evaluate evolve exaggerate examine
exceed exchange excite exclude excuse execute exercise exhaust exhibit exist expand expect experience explain explode
explore export expose express extend face fade fail faint fancy fasten favour fear feature fence fetch file fill film
filter finance finish fire fit fix flap flash flatter float flood flow flower fold follow fool force form found frame
free frighten fry fuel fulfil function gain gather gaze generate glance glow glue govern grab grade grant grasp greet
grin grip groan guarantee guard guess guide hammer handle happen harm hate haunt head heal heap heat help hesitate
highlight hike hire honour hook hop hope hover hug hum hunt hurry identify ignore imagine impact implement imply
import impose impress improve include increase indicate infect influence inform inherit inject injure inspect inspire
install instruct insult insure integrate intend interest interfere interpret interrupt introduce invade invent invest
investigate invite involve iron isolate issue itch jail jam jog join joke judge juggle jump justify kick kill kiss
knit knock label lack land last laugh launch lean learn level license lick lie lift light like limit link list listen
live load lock long look loosen love lower maintain manage manipulate march mark marry match matter measure melt
memorise mend mention merge milk mine miss mix moan modify monitor moor motivate mount mourn move muddle murder nail
name narrow need neglect negotiate nest nod note notice number obey object observe obtain occupy occur offend offer
omit open operate oppose order organise overflow owe own pack paddle paint park participate part pass paste pat pause
peck pedal peel peep perceive perform permit persist persuade phone pick pinch pine place plan plant play please plot
plug point poke polish pop possess post postpone pour practise pray preach precede predict prefer prepare present
preserve press pretend prevent prick print proceed process produce program progress project promise promote propose
protect protest prove provide pull pump punch punish purchase pursue push puzzle qualify question queue race rain
raise rank rate reach react realise rear reason receive recognise recommend recover recruit reduce refer reflect
refuse regard regret regulate reign reinforce reject rejoice relate relax release relieve rely remain remark remember
remind remove renew rent repair repeat replace reply report represent request require rescue research resemble reserve
resign resist resolve respond rest restore restrict result retain retire retreat return reveal reverse review revise
reward rhyme risk roar rob rock roll rot row rub ruin rule rush sail sample satisfy save scare scatter scold scorch
score scrape scratch scream screw scribble scrub seal search secure seem select separate serve settle shade share
sharpen shave shelter shift shiver shock shop shout shrug sigh sign signal sin sip ski skip slam slap slip slow smash
smell smile smoke snatch sneeze sniff snore snow soak solve soothe sound spare spark sparkle specify spoil spot spray
sprout squash squeak squeal squeeze stain stamp stare start state stay steer step stir stitch stop store strap
strengthen stress stretch strip stroke structure struggle study stuff submit substitute succeed suck suffer suggest
suit supply support suppose surprise surround suspect suspend sustain switch symbolise talk tame tap target taste
tease telephone tempt tend terrify test thank thaw threaten tick tickle tie time tip tire touch tour tow trace track
trade train transfer transform translate transmit transport trap travel treat tremble trick trip trot trouble trust
try tug tumble turn twist type undergird undress unfasten unite unlock unpack update upload urge use utter value
vanish vary venture view violate visit volunteer vote wail wait walk wander want warm warn wash waste watch water wave
weigh welcome whine whip whirl whisper whistle widen wink wipe wish witness wobble wonder work worry wrap wreck
wrestle wriggle yawn yell yield zip zoom
"""

DOUBLED = """
chat chop clap commit control dip drag drop drum equip fit flap grab grin grip hop hug hum jam jog knit nod occur omit
pat permit plan plot plug pop prefer program refer regret rob rot rub scrub shop shrug sin sip skip slam slap slip
spot step stir stop strap strip submit tap tip transfer transmit trap trip trot tug whip wrap zip cancel travel label
level signal pedal fulfil
"""

IRREGULAR = """
arise arose, awake awoke, be was, bear bore, beat beat, become became, begin began, bend bent, bet bet, bind bound,
bite bit, bleed bled, blow blew, break broke, breed bred, bring brought, build built, burst burst, buy bought, catch
caught, choose chose, cling clung, come came, cost cost, creep crept, cut cut, deal dealt, do did, draw drew, drink
drank, drive drove, eat ate, fall fell, feed fed, feel felt, fight fought, find found, flee fled, fling flung, fly
flew, forbid forbade, forget forgot, forgive forgave, freeze froze, get got, give gave, go went, grind ground, grow
grew, hang hung, have had, hear heard, hide hid, hit hit, hold held, hurt hurt, keep kept, kneel knelt, know knew, lay
laid, lead led, leave left, lend lent, let let, lose lost, make made, mean meant, meet met, pay paid, put put, quit
quit, read read, ride rode, ring rang, rise rose, run ran, say said, see saw, seek sought, sell sold, send sent, set
set, shake shook, shed shed, shine shone, shoot shot, shrink shrank, shut shut, sing sang, sink sank, sit sat, sleep
slept, slide slid, speak spoke, spend spent, spin spun, split split, spread spread, spring sprang, stand stood, steal
stole, stick stuck, sting stung, stink stank, strike struck, swear swore, sweep swept, swim swam, swing swung, take
took, teach taught, tear tore, tell told, think thought, throw threw, understand understood, wake woke, wear wore,
weave wove, weep wept, win won, wind wound, withdraw withdrew, write wrote
"""
NOT_REGULAR = {
    "cast",
    "dig",
    "lie",
    "light",
    "found",
}  # of the first list: another verb has this past, or it is irregular


def past(verb: str) -> str:
    """By rule.

    >>> past("hope"), past("hop"), past("try"), past("play"), past("want")
    ('hoped', 'hopped', 'tried', 'played', 'wanted')
    """
    if verb.endswith("e"):
        return f"{verb}d"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return f"{verb[:-1]}ied"
    return f"{verb}{verb[-1]}ed" if verb in DOUBLED.split() else f"{verb}ed"


def regular() -> list[tuple[str, str]]:
    return [(verb, past(verb)) for verb in dict.fromkeys(REGULAR.split()) if verb not in NOT_REGULAR]


def irregular() -> list[tuple[str, str]]:
    return [(verb, form) for verb, form in (pair.split() for pair in IRREGULAR.split(","))]
